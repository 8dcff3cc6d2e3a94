"""Versions of models: registered once, then active or retired."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from sqlalchemy import BigInteger, cast, func, insert, or_, select, update

from jobs.models.registered import RegisteredVersion
from jobs.store import queries
from jobs.store.db import Tx, lock
from jobs.store.registry_tables import model_versions as table
from jobs.store.tables import jobs

State = Literal["active", "retired"]


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version with its history."""

    name: str
    version: str
    entry: str  #: JSON: the fields of an entry of the models file but name and version
    artifact: str | None  #: digest
    probe: str | None  #: JSON
    state: State
    created_at: datetime
    created_by: str  #: as actor of the audit log

    @property
    def key(self) -> str:
        """Identity of this version: name@version."""
        return f"{self.name}@{self.version}"


_SELECT = select(*queries.columns(VersionRow, table))


def lock_registry(tx: Tx) -> None:
    """Waits for other changes of the registry, until the transaction ends: each checks what it
    changes against the rest."""
    lock(tx, "millrace.registry")


def insert_version(tx: Tx, one: RegisteredVersion, actor: str) -> None:
    """Registers a version, which isn't there yet."""
    names = {"name": one.name, "version": one.version, "created_by": actor}
    values = {"entry": one.entry, "artifact": one.artifact or None, "probe": one.probe or None}
    # Not now(): versions of one transaction have an order too.
    tx.execute(insert(table).values(**names, **values, created_at=func.clock_timestamp()))


def get(tx: Tx, name: str, version: str) -> VersionRow | None:
    """Returns a version, or None."""
    found = table.c.name == name, table.c.version == version
    return queries.one(tx, VersionRow, _SELECT.where(*found))


def all_of(tx: Tx, name: str = "") -> list[VersionRow]:
    """Returns the versions of a model ("": of all), those registered first at the beginning."""
    query = _SELECT.where(queries.equal(table, name=name))
    return queries.many(tx, VersionRow, query.order_by(table.c.name, table.c.created_at))


def in_state(tx: Tx, state: State) -> list[RegisteredVersion]:
    """Returns the versions in this state, those registered first at the beginning."""
    query = (
        select(table.c.name, table.c.version, table.c.entry,
               func.coalesce(table.c.artifact, ""), func.coalesce(table.c.probe, ""),
               cast(func.floor(func.extract("epoch", table.c.created_at)), BigInteger))
        .where(table.c.state == state)
        .order_by(table.c.created_at, table.c.name, table.c.version)
    )  # fmt: skip
    return queries.many(tx, RegisteredVersion, query)


def unfinished_jobs(tx: Tx, name: str, version: str, most: int = 100) -> list[UUID]:
    """Returns jobs that are bound to a version or to an adapter of it and have not ended, the
    oldest first."""
    adapted = jobs.c.model.startswith(f"{name}:", autoescape=True)
    query = select(jobs.c.id).where(or_(jobs.c.model == name, adapted), jobs.c.version == version)
    query = query.where(jobs.c.finished_at.is_(None)).order_by(jobs.c.id).limit(most)
    return list(tx.scalars(query))


def set_state(tx: Tx, name: str, version: str, state: State) -> None:
    """Retires a version, or takes that back."""
    _update(tx, name, version, state=state)


def set_entry(tx: Tx, name: str, version: str, entry: str) -> None:
    """Changes what may change in an entry: its price and adapters; the database refuses more."""
    _update(tx, name, version, entry=entry)


def set_probe(tx: Tx, name: str, version: str, probe: str) -> None:
    """Records the known answers of a version; the database refuses others while it is active."""
    _update(tx, name, version, probe=probe)


def _update(tx: Tx, name: str, version: str, **values: str) -> None:
    own = table.c.name == name, table.c.version == version
    tx.execute(update(table).where(*own).values(**values))
