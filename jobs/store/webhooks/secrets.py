"""Signing secrets of tenants, sealed: the current one, and the one before it during a rotation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, delete, func, insert, select, update

from jobs.store import db, queries
from jobs.store.db import Tx
from jobs.store.tables import webhook_secrets as table


@dataclass(frozen=True, slots=True)
class SecretRow:
    """One signing secret."""

    id: int  #: number that grows with time
    sealed: bytes  #: secret, encrypted by MILLRACE_SECRET_KEY
    created_at: datetime  #: time of creation
    shown_at: datetime | None  #: time at which its tenant saw it; None: not yet
    expires_at: datetime | None  #: end of its overlap with the next one; None: it is the current


_ACTIVE = (
    select(*queries.columns(SecretRow, table))
    .where(queries.is_own(table), queries.is_live(table))
    .order_by(table.c.id.desc())
)


def lock(tx: Tx, tenant: str) -> None:
    """Keeps others from making or rotating this tenant's secret until the transaction ends."""
    db.lock(tx, f"webhook secret of {tenant}")


def active(tx: Tx, tenant: str) -> Sequence[SecretRow]:
    """Returns the secrets that sign now, newest first."""
    return queries.many(tx, SecretRow, _ACTIVE, {"tenant": tenant})


def insert_secret(tx: Tx, tenant: str, sealed: bytes, *, shown: bool) -> None:
    """Adds a secret; shown: its tenant sees it now."""
    shown_at = func.now() if shown else None
    tx.execute(insert(table).values(tenant_id=tenant, sealed=sealed, shown_at=shown_at))


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """One secret of any tenant, as `millrace rotate-secret` reads it."""

    id: int  #: number that grows with time
    tenant_id: str  #: its owner
    sealed: bytes  #: secret, encrypted
    is_live: bool  #: it signs


def tenants_after(tx: Tx, tenant: str, limit: int) -> list[str]:
    """Returns the next tenants by name that have secrets, to see all of them page by page."""
    query = select(table.c.tenant_id).where(table.c.tenant_id > tenant).distinct()
    return list(tx.scalars(query.order_by(table.c.tenant_id).limit(limit)))


def of_tenants(tx: Tx, tenants: Sequence[str]) -> list[StoredSecret]:
    """Returns all secrets of these tenants."""
    query = select(table.c.id, table.c.tenant_id, table.c.sealed, queries.is_live(table))
    query = query.where(table.c.tenant_id.in_(tenants))
    return queries.many(tx, StoredSecret, query.order_by(table.c.id))


def replace_sealed(tx: Tx, sealed: Mapping[int, bytes]) -> None:
    """Replaces the encrypted form of secrets, by id."""
    statement = update(table).where(table.c.id == bindparam("secret"))
    values = [{"secret": id, "encrypted": encrypted} for id, encrypted in sealed.items()]
    if values:
        tx.execute(statement.values(sealed=bindparam("encrypted")), values)


def mark_shown(tx: Tx, id: int) -> None:
    """Records that a secret was shown to its tenant."""
    tx.execute(update(table).where(table.c.id == id).values(shown_at=func.now()))


def retire(tx: Tx, tenant: str, overlap_s: float) -> None:
    """Ends the current secret in `overlap_s`, and all but the one before it now.

    That one goes on until its own end: where the answer with the current secret was lost, the
    receivers still have the one before."""
    own = table.c.tenant_id == tenant
    retired = own, table.c.expires_at.is_not(None)
    latest = select(func.max(table.c.id)).where(*retired).scalar_subquery()
    before = delete(table).where(*retired, table.c.id < latest).cte("before")
    current = update(table).where(own, table.c.expires_at.is_(None)).add_cte(before)
    tx.execute(current.values(expires_at=queries.in_s(overlap_s)))
