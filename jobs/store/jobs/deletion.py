"""Erasing what is left of jobs: their rows, some in each transaction, then their payloads.

`deletions` is the queue. What it names is never read again, so that nothing here needs the locks
of the verbs.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from sqlalchemy import text

from jobs.store.db import Tx

_MOST_ITEMS = 20_000  # of one transaction
_MOST_JOBS = 50

_FORGET = [
    text(f"DELETE FROM {table} WHERE {column} = ANY(:jobs)")
    for table, column in (
        ("slices", "job_id"),
        ("webhook_deliveries", "job_id"),
        ("idempotency_keys", "job_id"),
        ("transfers", "job_id"),
        ("jobs", "id"),
    )
]


def delete_jobs(tx: Tx, jobs: Sequence[UUID]) -> None:
    """Removes what is known of jobs, apart from their items and results. The caller has locked
    their slices, then them."""
    for step in _FORGET:
        tx.execute(step, {"jobs": jobs})


_WITH_ROWS = text("""
    SELECT job_id, total, erased FROM deletions WHERE erased < total
    ORDER BY job_id LIMIT :most FOR UPDATE SKIP LOCKED
""")
_ERASE = [
    text(f"DELETE FROM {table} WHERE job_id = :job AND seq >= :since AND seq < :until")
    for table in ("items", "results", "results_archive", "attempts")
]
_ERASED = text("UPDATE deletions SET erased = :until WHERE job_id = :job")


def erase_rows(tx: Tx) -> int:
    """Erases the next items of deleted jobs, with all that belongs to them; returns their
    number."""
    room = _MOST_ITEMS
    for job, total, erased in tx.execute(_WITH_ROWS, {"most": _MOST_JOBS}).all():
        until = min(total, erased + room)
        for step in (*_ERASE, _ERASED):
            tx.execute(step, {"job": job, "since": erased, "until": until})
        room -= until - erased
        if not room:
            break
    return _MOST_ITEMS - room


_WITHOUT_ROWS = text("""
    SELECT job_id FROM deletions WHERE erased = total
    ORDER BY job_id LIMIT 1 FOR UPDATE SKIP LOCKED
""")
_DONE = text("DELETE FROM deletions WHERE job_id = :job")


def erase_payloads(tx: Tx, erase: Callable[[UUID], None]) -> int:
    """Calls `erase` with one job that has no rows any more, and takes it off the queue; returns
    their number. Where it takes longer than a transaction may be idle it is called again, and
    finds less to do."""
    job = tx.scalar(_WITHOUT_ROWS)
    if job is None:
        return 0
    erase(job)
    tx.execute(_DONE, {"job": job})
    return 1
