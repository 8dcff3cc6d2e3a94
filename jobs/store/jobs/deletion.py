"""Erasure of deleted jobs: their rows, some in each transaction, then their payloads.

`deletions` is the queue. What it names is never read again, so that nothing here needs the locks
of the verbs.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.dialects.postgresql import insert

from jobs.store.db import Tx
from jobs.store.jobs import idempotency
from jobs.store.scaling_tables import prepared
from jobs.store.tables import (
    attempts,
    checkpoints,
    deletions,
    items,
    jobs,
    results,
    results_archive,
    slices,
    transfers,
    webhook_deliveries,
)

_MOST_ITEMS = 20_000  # of one transaction
_MOST_JOBS = 50


def lock_ended(tx: Tx, ids: Collection[UUID]) -> list[UUID]:
    """Locks the slices of jobs, then the jobs; returns those that are there and have ended."""
    its_slices = select(slices.c.start).where(slices.c.job_id.in_(ids))
    tx.execute(its_slices.order_by(slices.c.job_id, slices.c.start).with_for_update())
    ended = select(jobs.c.id).where(jobs.c.id.in_(ids), jobs.c.finished_at.is_not(None))
    return list(tx.scalars(ended.order_by(jobs.c.id).with_for_update()))


def enqueue(tx: Tx, ids: Collection[UUID]) -> None:
    """Adds jobs to the queue, from their first item on."""
    columns = ["job_id", "tenant_id", "total"]
    query = select(jobs.c.id, jobs.c.tenant_id, jobs.c.total).where(jobs.c.id.in_(ids))
    queue = insert(deletions).from_select(columns, query, include_defaults=False)
    tx.execute(queue.on_conflict_do_update(index_elements=["job_id"], set_={"erased": 0}))


def delete_jobs(tx: Tx, ids: Sequence[UUID]) -> None:
    """Deletes the rows that describe jobs, their items and results aside. Their Idempotency-Keys
    stay until they lapse.

    The caller has locked their slices, then them.
    """
    for table in (slices, checkpoints, prepared, webhook_deliveries, transfers):
        tx.execute(delete(table).where(table.c.job_id.in_(ids)))
    idempotency.empty(tx, ids)
    tx.execute(delete(jobs).where(jobs.c.id.in_(ids)))


_WITH_ROWS = (
    select(deletions.c.job_id, deletions.c.total, deletions.c.erased)
    .where(deletions.c.erased < deletions.c.total)
    .order_by(deletions.c.job_id)
    .limit(_MOST_JOBS)
    .with_for_update(skip_locked=True)
)
_ERASE = [
    delete(table).where(
        table.c.job_id == bindparam("job"),
        table.c.seq >= bindparam("since"),
        table.c.seq < bindparam("until"),
    )
    for table in (items, results, results_archive, attempts)
]


def erase_rows(tx: Tx) -> int:
    """Erases the next items of deleted jobs with all that belongs to them; returns their number."""
    room = _MOST_ITEMS
    for job, total, erased in tx.execute(_WITH_ROWS).all():
        until = min(total, erased + room)
        for step in _ERASE:
            tx.execute(step, {"job": job, "since": erased, "until": until})
        tx.execute(update(deletions).where(deletions.c.job_id == job).values(erased=until))
        room -= until - erased
        if not room:
            break
    return _MOST_ITEMS - room


_WITHOUT_ROWS = (
    select(deletions.c.job_id)
    .where(deletions.c.erased == deletions.c.total)
    .order_by(deletions.c.job_id)
    .limit(1)
    .with_for_update(skip_locked=True)
)


def erase_payloads(tx: Tx, erase: Callable[[UUID], None]) -> int:
    """Calls `erase` with one job that has no rows left, and takes it off the queue.

    Returns the number of jobs, 0 or 1. Where `erase` takes longer than a transaction may be idle,
    it is called again and finds less to do.
    """
    job = tx.scalar(_WITHOUT_ROWS)
    if job is None:
        return 0
    erase(job)
    tx.execute(delete(deletions).where(deletions.c.job_id == job))
    return 1
