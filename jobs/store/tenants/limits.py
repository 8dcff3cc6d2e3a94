"""The limits of tenants, as admins set them."""

from collections.abc import Iterable
from dataclasses import asdict, fields

from sqlalchemy import text

from jobs.identity import Limit
from jobs.store.db import Tx, notify_keys
from jobs.store.tenants import tenants

_NUMBERS = tuple(field.name for field in fields(Limit) if field.name not in ("model", "key"))
_OF = text(f"""
    SELECT model, key_id AS key, {", ".join(_NUMBERS)}
    FROM limits WHERE tenant_id = :tenant ORDER BY model, key_id
""")
_CLEAR = text("DELETE FROM limits WHERE tenant_id = :tenant")
_INSERT = text(f"""
    INSERT INTO limits (tenant_id, model, key_id, {", ".join(_NUMBERS)})
    VALUES (:tenant, :model, :key, {", ".join(f":{name}" for name in _NUMBERS)})
""")
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('millrace.limits:' || :tenant, 0))")


def get(tx: Tx, tenant: str) -> list[Limit]:
    """All of them, those of its keys too."""
    return [Limit(**row) for row in tx.execute(_OF, {"tenant": tenant}).mappings()]


def put(tx: Tx, tenant: str, limits: Iterable[Limit]) -> None:
    """These take the place of all that there were; api processes know at once. No two of them are
    for the same model and key. Raises Conflict where the tenant was erased."""
    tenants.ensure(tx, tenant)
    tx.execute(_LOCK, {"tenant": tenant})
    tx.execute(_CLEAR, {"tenant": tenant})
    for limit in limits:
        tx.execute(_INSERT, {"tenant": tenant, **asdict(limit)})
    notify_keys(tx, tenant)
