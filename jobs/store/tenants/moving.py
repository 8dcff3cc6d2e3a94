"""Move of a tenant to another database: its terms, keys, limits, signing secrets and
Idempotency-Keys as JSON. Jobs, results, files and usage stay where they are."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Column, LargeBinary, Table, Uuid, select
from sqlalchemy.dialects.postgresql import TIMESTAMP, insert

from jobs.errors import Conflict, NotFound
from jobs.store import queries
from jobs.store.db import Tx, notify_keys
from jobs.store.tables import api_keys, idempotency_keys, limits, tenants, webhook_secrets

_MOVED = (tenants, api_keys, limits, webhook_secrets, idempotency_keys)
_COUNTED = {"webhook_secrets": "id"}  # the database counts these up


def export_tenant(tx: Tx, tenant: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows to move, by table; keys are hashes, signing secrets are encrypted.

    Raises NotFound where there are none.
    """
    rows = {table.name: _rows(tx, table, tenant) for table in _MOVED}
    if not any(rows.values()):
        raise NotFound(f"no tenant {tenant}")
    return rows


def import_tenant(tx: Tx, tenant: str, rows: Mapping[str, list[dict[str, Any]]]) -> dict[str, int]:
    """Stores exported rows in place of those that are here, and returns their number by table.

    May be repeated with a later export. Raises Conflict where the tenant is erased here, or the
    rows are another's or not as `export_tenant` returns them.
    """
    try:
        typed = {table: [_typed_row(table, row) for row in rows[table.name]] for table in _MOVED}
        strangers = any(row["tenant_id"] != tenant for found in typed.values() for row in found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Conflict(f"the rows are not as they were exported: {error!r}") from error
    if strangers:
        raise Conflict(f"not all rows are of {tenant}")
    erased = select(tenants.c.erased_at).where(tenants.c.tenant_id == tenant)
    if tx.scalars(erased).one_or_none():
        raise Conflict(f"{tenant} was erased here")
    for table in _MOVED:
        if table in (limits, webhook_secrets):  # a row that went away there goes away here
            tx.execute(table.delete().where(table.c.tenant_id == tenant))
        for row in typed[table]:
            _upsert(tx, table, row)
    notify_keys(tx, tenant)
    return {str(table.name): len(found) for table, found in typed.items()}  # orjson wants str


def _rows(tx: Tx, table: Table, tenant: str) -> list[dict[str, Any]]:
    query = select(table).where(queries.is_own(table))
    return [
        {name: _plain(value) for name, value in row.items() if name != _COUNTED.get(table.name)}
        for row in tx.execute(query, {"tenant": tenant}).mappings()
    ]


def _typed_row(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _typed(table.c[name], value) for name, value in row.items()}


def _upsert(tx: Tx, table: Table, values: Mapping[str, Any]) -> None:
    statement = insert(table).values(values)
    key = list(table.primary_key.columns)
    if table.name not in _COUNTED:
        statement = statement.on_conflict_do_update(index_elements=key, set_=values)
    tx.execute(statement)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, int | float | str | list) else str(value)


def _typed(column: Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(column.type, LargeBinary):
        return bytes.fromhex(value)
    if isinstance(column.type, TIMESTAMP):
        return datetime.fromisoformat(value)
    return UUID(value) if isinstance(column.type, Uuid) else value
