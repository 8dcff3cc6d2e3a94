"""Routes: shares of a model's calls by version, for one tenant or for all."""

from typing import Any

import orjson
from sqlalchemy import RowMapping, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from jobs.models.routing.route import Route, Share
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.registry_tables import model_routes as table

_SELECT = select(
    table.c.name, table.c.tenant_id, table.c.splits, table.c.sticky, table.c.salt, table.c.shadow
)


def all_of(tx: Tx, name: str = "") -> list[Route]:
    """Returns the routes of a model; "": of all."""
    query = _SELECT.where(queries.equal(table, name=name))
    rows = tx.execute(query.order_by(table.c.name, table.c.tenant_id)).mappings()
    return [_route(row) for row in rows]


def get(tx: Tx, name: str, tenant: str) -> Route | None:
    """Returns the route of a model for this tenant (ALL_TENANTS: for all), or None."""
    own = table.c.name == name, table.c.tenant_id == tenant
    row = tx.execute(_SELECT.where(*own)).mappings().one_or_none()
    return None if row is None else _route(row)


def put(tx: Tx, route: Route, actor: str) -> None:
    """Sets a route in place of the one before."""
    shadow = None if route.shadow is None else orjson.dumps(_share(route.shadow)).decode()
    values = {"splits": orjson.dumps([_share(one) for one in route.splits]).decode()}
    changed: dict[str, Any] = {
        **values,
        "sticky": route.sticky,
        "salt": route.salt,
        "shadow": shadow,
    }
    changed |= {"updated_by": actor, "updated_at": func.now()}
    tx.execute(
        insert(table)
        .values(name=route.name, tenant_id=route.tenant, **changed)
        .on_conflict_do_update(index_elements=["name", "tenant_id"], set_=changed)
    )


def remove(tx: Tx, name: str, tenant: str) -> None:
    """Removes a route."""
    tx.execute(delete(table).where(table.c.name == name, table.c.tenant_id == tenant))


def _share(share: Share) -> dict[str, Any]:
    return {"version": share.version, "percent": share.percent}


def _route(row: RowMapping) -> Route:
    shares = tuple(Share(**one) for one in orjson.loads(row["splits"]))
    shadow = Share(**orjson.loads(row["shadow"])) if row["shadow"] else None
    return Route(row["name"], shares, row["tenant_id"], row["sticky"], row["salt"], shadow)
