"""Aliases: names for versions of a model that may be pointed to another one."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, literal, select
from sqlalchemy.dialects.postgresql import insert

from jobs.models.routing.table import KEEP_WARM_S
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.registry_tables import model_aliases as table


@dataclass(frozen=True, slots=True)
class AliasRow:
    """One alias of a model."""

    name: str  #: of the model
    alias: str
    version: str
    updated_at: datetime
    updated_by: str  #: as actor of the audit log
    previous: str | None  #: version before
    warm_until: datetime | None  #: time until which workers keep that one warm


def all_of(tx: Tx, name: str = "") -> list[AliasRow]:
    """Returns the aliases of a model; "": of all."""
    query = select(*queries.columns(AliasRow, table)).where(queries.equal(table, name=name))
    return queries.many(tx, AliasRow, query.order_by(table.c.name, table.c.alias))


def kept_warm(tx: Tx) -> set[str]:
    """Returns the versions (name@version) that aliases meant before, and that workers keep warm."""
    before = select(func.concat(table.c.name, "@", table.c.previous))
    return set(tx.scalars(before.where(table.c.warm_until > func.now())))


def get(tx: Tx, name: str, alias: str) -> str | None:
    """Returns the version that an alias means, or None."""
    own = table.c.name == name, table.c.alias == alias
    return tx.scalars(select(table.c.version).where(*own)).one_or_none()


def put(
    tx: Tx, name: str, alias: str, version: str, actor: str, keep_warm_s: float = KEEP_WARM_S
) -> None:
    """Points an alias to a version. keep_warm_s: time for which workers keep the version before."""
    values = {"version": version, "updated_by": actor, "updated_at": func.now()}
    before = {"previous": table.c.version, "warm_until": queries.in_s(literal(keep_warm_s))}
    tx.execute(
        insert(table)
        .values(name=name, alias=alias, **values)
        .on_conflict_do_update(index_elements=["name", "alias"], set_=values | before)
    )


def remove(tx: Tx, name: str, alias: str) -> None:
    """Removes an alias."""
    tx.execute(delete(table).where(table.c.name == name, table.c.alias == alias))
