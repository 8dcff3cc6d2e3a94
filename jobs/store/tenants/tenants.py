"""Tenants: their share, their caps, and what their credentials are held to."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert

from jobs.errors import Conflict, NotFound
from jobs.identity import Limit
from jobs.store import queries
from jobs.store.billing import spend
from jobs.store.db import Tx, notify_keys
from jobs.store.tables import limits, tenants


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant as admins set it."""

    tenant_id: str  #: its name
    weight: float  #: fair-share weight
    soft_cap: Decimal | None  #: monthly spend at which its webhook is notified; None: no cap
    hard_cap: Decimal | None  #: monthly spend from which it is refused; None: no cap
    created_at: datetime | None  #: time of creation; None: it has no row of its own
    erased_at: datetime | None  #: start of its erasure; None: it is not erased


class Terms(NamedTuple):
    """Rights that a tenant's credential has."""

    weight: float = 1.0  #: fair-share weight
    limits: tuple[Limit, ...] = ()  #: limits of the tenant and of the key
    spent: bool = False  #: True once this month's hard cap is reached


_COLUMNS = queries.columns(TenantRow, tenants)
_IS_OWN = queries.is_own(tenants)
_IS_ERASED = select(tenants.c.erased_at.is_not(None)).where(_IS_OWN)
_LOCK = _IS_ERASED.with_for_update(read=True)
_WEIGHT = select(tenants.c.weight).where(_IS_OWN)
_NUMBERS = queries.columns(Limit, limits)[1:]  # without the model
_LIMITS = select(limits.c.model, limits.c.key_id, *_NUMBERS).where(queries.is_own(limits))
_ALL_LIMITS = _LIMITS.order_by(limits.c.model, limits.c.key_id)
_LIMITS_OF_KEYS = _LIMITS.where(limits.c.key_id.in_(bindparam("keys", expanding=True)))


def terms(tx: Tx, tenant: str, key: str = "") -> Terms:
    """Returns what the tenant has and may; key: of this one of its keys too (`key_…`)."""
    weight = tx.scalars(_WEIGHT, {"tenant": tenant}).one_or_none()
    limits = tuple(read_limits(tx, tenant, ("", key)))
    return Terms(1.0 if weight is None else weight, limits, spend.cap_reached(tx, tenant))


def read_limits(tx: Tx, tenant: str, keys: Collection[str] | None = None) -> list[Limit]:
    """Returns a tenant's limits; keys: only these keys' ("": those of all keys together)."""
    if keys is None:
        return queries.many(tx, Limit, _ALL_LIMITS, {"tenant": tenant})
    return queries.many(tx, Limit, _LIMITS_OF_KEYS, {"tenant": tenant, "keys": list(keys)})


def ensure(tx: Tx, tenant: str) -> None:
    """Makes the tenant's row where there is none; it isn't erased before the transaction ends.

    Raises Conflict where it was erased.
    """
    tx.execute(insert(tenants).values(tenant_id=tenant).on_conflict_do_nothing())
    if tx.scalar(_LOCK, {"tenant": tenant}):
        raise Conflict(f"the tenant {tenant} was erased; take another name")


def is_erased(tx: Tx, tenant: str) -> bool:
    """Returns True if the tenant was erased."""
    return bool(tx.scalar(_IS_ERASED, {"tenant": tenant}))


def get(tx: Tx, tenant: str) -> TenantRow:
    """Returns a tenant. Raises NotFound."""
    row = queries.one(tx, TenantRow, select(*_COLUMNS).where(_IS_OWN), {"tenant": tenant})
    if row is None:
        raise NotFound(f"there is no tenant {tenant}")
    return row


def page(tx: Tx, tenant: str, after: str, limit: int) -> Sequence[TenantRow]:
    """Lists tenants by name; after: the last one of the page before. tenant: one, or EVERYBODY."""
    query = select(*_COLUMNS).where(queries.is_own_or_all(tenants, tenant))
    by_name = queries.page(query, tenants.c.tenant_id, after, limit, ascending=True)
    return queries.many(tx, TenantRow, by_name)


def put(tx: Tx, tenant: str, **terms: Any) -> TenantRow:
    """Sets a tenant's weight, soft_cap and hard_cap, and notifies api processes.

    Raises Conflict where it was erased.
    """
    ensure(tx, tenant)
    new = insert(tenants).values(tenant_id=tenant, **terms)
    put = new.on_conflict_do_update(index_elements=["tenant_id"], set_=terms)
    row = TenantRow(*tx.execute(put.returning(*_COLUMNS)).one())
    notify_keys(tx, tenant)
    return row


def change(tx: Tx, tenant: str, **terms: Any) -> TenantRow:
    """Sets some of these, and leaves the others. Raises as `put`."""
    ensure(tx, tenant)
    now = get(tx, tenant)
    old = {"weight": now.weight, "soft_cap": now.soft_cap, "hard_cap": now.hard_cap}
    return put(tx, tenant, **old | terms)
