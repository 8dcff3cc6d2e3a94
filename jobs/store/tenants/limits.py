"""Limits of tenants, as admins set them."""

from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import delete, insert

from jobs.identity import Limit
from jobs.store.db import Tx, lock, notify_keys
from jobs.store.tables import limits as table
from jobs.store.tenants import tenants


def get(tx: Tx, tenant: str) -> list[Limit]:
    """Returns all limits of a tenant, those of its keys included."""
    return tenants.read_limits(tx, tenant)


def put(tx: Tx, tenant: str, limits: Iterable[Limit]) -> None:
    """Replaces all limits of a tenant, and notifies api processes.

    No two limits are for the same model and key. Raises Conflict where the tenant was erased.
    """
    tenants.ensure(tx, tenant)
    lock(tx, f"millrace.limits:{tenant}")
    tx.execute(delete(table).where(table.c.tenant_id == tenant))
    rows = [{"tenant_id": tenant, "key_id": limit.key, **asdict(limit)} for limit in limits]
    for row in rows:
        del row["key"]
    if rows:
        tx.execute(insert(table), rows)
    notify_keys(tx, tenant)
