"""Erasure of tenants: some of a tenant's rows in each transaction, until nothing is left.

Its row in `tenants` stays, so that nobody can come under that name again. So do the stumps of its
keys (a key that was ever made ends the open mode), what it owes, and the audit log. What was under
way when the erasure began and arrives later is found, and removed too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Delete,
    Table,
    Update,
    any_,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from jobs.errors import NotFound
from jobs.store import queries
from jobs.store.db import Tx, notify_keys
from jobs.store.jobs import deletion, verbs
from jobs.store.scaling_tables import conversations
from jobs.store.tables import (
    api_keys,
    deletions,
    files,
    idempotency_keys,
    jobs,
    limits,
    model_routes,
    next_tenants,
    responses,
    tenants,
    turns,
    usage,
    webhook_deliveries,
    webhook_endpoints,
    webhook_secrets,
)

_MOST_JOBS = 500  # of one transaction
_MOST_ITEMS = 1_000_000  # of those jobs; one job is the least
_MOST_ROWS = 10_000


def begin(tx: Tx, tenant: str) -> None:
    """Revokes all keys of a tenant, and marks it as erased; harmless to repeat.

    Raises NotFound where nobody ever had that name.
    """
    if not tx.scalar(select(or_(*(_has(table, tenant) for table in _KNOWN_BY)))):
        raise NotFound(f"there is no tenant {tenant}")
    now = func.now()
    mark = insert(tenants).values(tenant_id=tenant, erased_at=now)
    reset: dict[str, Any] = {"weight": 1, "soft_cap": None, "hard_cap": None, "webhook_url": None}
    reset["erased_at"] = func.coalesce(tenants.c.erased_at, now)
    # First: whoever makes a key waits for this row, and is then refused.
    tx.execute(mark.on_conflict_do_update(index_elements=["tenant_id"], set_=reset))
    revoked_at = func.coalesce(api_keys.c.revoked_at, now)
    revoke = update(api_keys).where(api_keys.c.tenant_id == tenant)
    tx.execute(revoke.values(revoked_at=revoked_at, name="", hint=""))
    notify_keys(tx, tenant)


_KNOWN_BY = (
    tenants, jobs, api_keys, usage, idempotency_keys, webhook_secrets, files, responses,
    conversations,
)  # fmt: skip
_OTHERS = (
    idempotency_keys, webhook_secrets, webhook_endpoints, webhook_deliveries, limits, responses,
    conversations, model_routes, files,
)  # fmt: skip


def _of(table: Table, tenant: Any) -> Any:
    """Filters by a tenant; webhooks of jobs are removed with their jobs."""
    own = table.c.tenant_id == tenant
    return own & table.c.job_id.is_(None) if table is webhook_deliveries else own


def _has(table: Table, tenant: Any) -> Any:
    return exists().where(_of(table, tenant))


def _count(table: Table, tenant: Any, *more: Any) -> Any:
    query = select(func.count()).select_from(table)
    return query.where(_of(table, tenant), *more).scalar_subquery()


@dataclass(frozen=True, slots=True)
class Remaining:
    """Rows of a tenant that are still to be erased."""

    erased_at: datetime  #: start of the erasure
    open: int  #: jobs that have not ended
    jobs: int  #: jobs, the open ones included
    erasing: int  #: jobs whose rows or payloads are being erased
    items: int  #: items of those jobs that still have rows
    others: int  #: rows of every other kind


def remaining(tx: Tx, tenant: str) -> Remaining:
    """Counts what is left of a tenant. Raises NotFound where none of that name is erased."""
    items = select(func.coalesce(func.sum(deletions.c.total - deletions.c.erased), 0))
    query = select(
        tenants.c.erased_at,
        _count(jobs, tenant, jobs.c.finished_at.is_(None)),
        _count(jobs, tenant),
        _count(deletions, tenant),
        items.where(deletions.c.tenant_id == tenant).scalar_subquery(),
        sum((_count(table, tenant) for table in _OTHERS[1:]), _count(_OTHERS[0], tenant)),
    ).where(tenants.c.tenant_id == tenant, tenants.c.erased_at.is_not(None))
    row = queries.one(tx, Remaining, query)
    if row is None:
        raise NotFound(f"there is no tenant {tenant} that is erased")
    return row


# Files that have expired are left to the keeper's duty that knows the blob store.
_UNFINISHED = (
    select(tenants.c.tenant_id)
    .where(
        tenants.c.erased_at.is_not(None),
        or_(
            *(_has(table, tenants.c.tenant_id) for table in (jobs, turns, *_OTHERS[:-1])),
            _has(files, tenants.c.tenant_id).where(queries.is_live(files)),
            exists().where(tenants.c.tenant_id == any_(next_tenants.c.tenants)),
        ),
    )
    .order_by(tenants.c.erased_at)
    .with_for_update(key_share=True, skip_locked=True)
)


def recently_erased(tx: Tx, within_s: float) -> list[str]:
    """Returns tenants whose erasure began within that time."""
    since = func.now() - timedelta(seconds=within_s)
    return list(tx.scalars(select(tenants.c.tenant_id).where(tenants.c.erased_at > since)))


def continue_erasing(tx: Tx) -> int:
    """Takes the next step for one erased tenant; returns its rows, 0 where nothing can be done now.

    What waits for a worker's launch, and the queue of deletions, come by themselves.
    """
    for tenant in tx.scalars(_UNFINISHED).all():
        for step in _STEPS:
            if done := step(tx, tenant):
                return done
    return 0


Step = Callable[[Tx, str], int]
_Change = Update | Delete


def _rows(change: _Change, *conditions: Any, key: Any = None) -> Step:
    """A step that changes rows of a table; key: the first _MOST_ROWS by it, else all at once."""
    table = change.table
    own = [queries.is_own(table), *conditions]
    if key is None:
        statement: _Change = change.where(*own)
    else:
        some = select(key).where(*own).order_by(key).limit(_MOST_ROWS).with_for_update()
        statement = change.where(queries.is_own(table), key.in_(some))
    return lambda tx, tenant: tx.execute(statement, {"tenant": tenant}).rowcount


def _delete_lists(tx: Tx, tenant: str) -> int:
    """Deletes lists that name the tenant: claims make new ones."""
    return tx.execute(
        delete(next_tenants).where(literal(tenant) == any_(next_tenants.c.tenants))
    ).rowcount


def _cancel(tx: Tx, tenant: str) -> int:
    """Cancels one job: locks are taken slices first, then the job."""
    query = select(jobs.c.id).where(
        jobs.c.tenant_id == tenant, jobs.c.finished_at.is_(None), jobs.c.state != "cancelling"
    )
    found = tx.scalar(query.order_by(jobs.c.id).limit(1))
    if found is not None:
        verbs.cancel(tx, found, tenant)
    return found is not None


def _delete(tx: Tx, tenant: str) -> int:
    """Deletes jobs that have ended, as the verb does it, many at a time."""
    has_ended = jobs.c.tenant_id == tenant, jobs.c.finished_at.is_not(None)
    oldest = queries.oldest_jobs(*has_ended, most=_MOST_JOBS, most_items=_MOST_ITEMS)
    found = tx.scalars(oldest).all()
    if not found:
        return 0
    ended: list[UUID] = deletion.lock_ended(tx, found)
    deletion.enqueue(tx, ended)
    deletion.delete_jobs(tx, ended)
    return len(ended)


_STEPS: tuple[Step, ...] = (
    _rows(
        update(jobs).values(webhook_url=None),
        jobs.c.finished_at.is_(None), jobs.c.webhook_url.is_not(None), key=jobs.c.id,
    ),
    _rows(
        delete(webhook_deliveries),
        or_(webhook_deliveries.c.state == "pending", webhook_deliveries.c.job_id.is_(None)),
        key=webhook_deliveries.c.id,
    ),
    *(
        _rows(delete(table))
        for table in (webhook_secrets, webhook_endpoints, limits, turns, model_routes)
    ),
    _cancel,
    _delete,
    # The keeper's duty that removes expired files knows the blob store.
    _rows(update(files).values(expires_at=func.now()), queries.is_live(files), key=files.c.id),
    _rows(delete(idempotency_keys), key=idempotency_keys.c.key),
    _rows(delete(responses), key=responses.c.id),
    _rows(delete(conversations), key=conversations.c.id),
    _delete_lists,
)  # fmt: skip
