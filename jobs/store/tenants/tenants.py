"""Tenants: their share, their caps, and what a credential of theirs is held to."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import RowMapping, text

from jobs.errors import Conflict, NotFound
from jobs.identity import Limit
from jobs.store.billing import spend
from jobs.store.db import Tx, notify_keys

_ENSURE = text("INSERT INTO tenants (tenant_id) VALUES (:tenant) ON CONFLICT DO NOTHING")
_ERASED = text("SELECT erased_at IS NOT NULL FROM tenants WHERE tenant_id = :tenant")
_HOLD = text("SELECT erased_at IS NOT NULL FROM tenants WHERE tenant_id = :tenant FOR SHARE")
_GET = text("SELECT * FROM tenants WHERE tenant_id = :tenant")
_PAGE = text("""
    SELECT * FROM tenants
    WHERE (tenant_id = :tenant OR :tenant = '*') AND tenant_id > :after
    ORDER BY tenant_id LIMIT :limit
""")
_PUT = text("""
    INSERT INTO tenants (tenant_id, weight, soft_cap, hard_cap)
    VALUES (:tenant, :weight, :soft_cap, :hard_cap)
    ON CONFLICT (tenant_id) DO UPDATE
    SET weight = excluded.weight, soft_cap = excluded.soft_cap, hard_cap = excluded.hard_cap
    RETURNING *
""")
_WEIGHT = text("SELECT weight FROM tenants WHERE tenant_id = :tenant")
_LIMITS = text("""
    SELECT model, key_id AS key, requests_per_s, tokens_per_s, calls_in_flight, queued_items,
           stored_bytes, job_items
    FROM limits WHERE tenant_id = :tenant AND key_id IN ('', :key)
""")
_TERMS = ("weight", "soft_cap", "hard_cap")


class Terms(NamedTuple):
    weight: float = 1.0
    limits: tuple[Limit, ...] = ()
    spent: bool = False


def terms(tx: Tx, tenant: str, key: str = "") -> Terms:
    """What the tenant has and may; key: of this one of its keys too (`key_…`)."""
    weight = tx.scalars(_WEIGHT, {"tenant": tenant}).one_or_none()
    rows = tx.execute(_LIMITS, {"tenant": tenant, "key": key}).mappings()
    limits = tuple(Limit(**row) for row in rows)
    return Terms(1.0 if weight is None else weight, limits, spend.cap_reached(tx, tenant))


def ensure(tx: Tx, tenant: str) -> None:
    """Its row is there, and it isn't erased before the transaction ends. Raises Conflict where it
    was."""
    tx.execute(_ENSURE, {"tenant": tenant})
    if tx.scalar(_HOLD, {"tenant": tenant}):
        raise Conflict(f"the tenant {tenant} was erased; take another name")


def is_erased(tx: Tx, tenant: str) -> bool:
    return bool(tx.scalar(_ERASED, {"tenant": tenant}))


def get(tx: Tx, tenant: str) -> RowMapping:
    """Raises NotFound."""
    row = tx.execute(_GET, {"tenant": tenant}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no tenant {tenant}")
    return row


def page(tx: Tx, tenant: str, after: str, limit: int) -> Sequence[RowMapping]:
    """By name; `after` is the last one of the page before. tenant: one, or EVERYBODY."""
    values = {"tenant": tenant, "after": after, "limit": limit}
    return tx.execute(_PAGE, values).mappings().all()


def put(tx: Tx, tenant: str, **terms: Any) -> RowMapping:
    """Sets its weight, soft_cap and hard_cap; api processes know at once. Raises Conflict where it
    was erased."""
    ensure(tx, tenant)
    row = tx.execute(_PUT, {"tenant": tenant, **terms}).mappings().one()
    notify_keys(tx, tenant)
    return row


def change(tx: Tx, tenant: str, **terms: Any) -> RowMapping:
    """Sets some of these, and leaves the others."""
    ensure(tx, tenant)
    return put(tx, tenant, **{name: get(tx, tenant)[name] for name in _TERMS} | terms)
