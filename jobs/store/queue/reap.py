"""Leases that ran out or whose worker ended, and their slices: freed, bisected, quarantined.

A slice is freed at no cost where its worker stopped, was killed from outside, or lives and only
lost the lease. It is accused where the worker crashed or hung: then it becomes suspect and runs
alone; accused again it is split, and its halves stay suspect; an item that is accused three times
while it is alone is quarantined. So n items cost at most log2(n) + 5 deaths.
"""

from collections.abc import Sequence
from uuid import UUID

import orjson
from sqlalchemy import text

from jobs.store.db import Tx, notify_work
from jobs.store.queue.finish import COUNTS, close_finished_jobs, end_slices
from jobs.telemetry.metrics import record

DEATHS_ALONE = 3
"""Deaths of workers that ran an item alone after which it is not tried again."""

_SliceKey = tuple[UUID, int]

# A worker is dead when its supervisor says so, or when both have been silent. After an outage of
# the database everybody gets a lease's time to renew: nobody could before. Locked slices are in
# use.
_LOCK_LOST = text("""
    SELECT s.job_id, s.start, s.suspect,
           coalesce(w.died IN ('crashed', 'hung'),
                    w.ended_at IS NULL
                        AND greatest(w.heartbeat_at, w.watched_at)
                            < now() - make_interval(secs => :lease_s),
                    false) AS accused
    FROM slices s LEFT JOIN workers w ON w.incarnation = s.lease_owner
    WHERE s.state = 'leased'
      AND (w.ended_at IS NOT NULL
           OR s.lease_until < now()
              AND pg_postmaster_start_time() < now() - make_interval(secs => :lease_s))
    ORDER BY s.job_id, s.start LIMIT 1000 FOR UPDATE OF s SKIP LOCKED
""")

# The epoch fences off the former owner. A slice of a paused job is held.
_FREE = text("""
    UPDATE slices
    SET state = CASE WHEN j.state = 'paused' THEN 'held' ELSE 'ready' END,
        epoch = epoch + 1, lease_owner = NULL, lease_until = NULL,
        suspect = suspect OR lost.accused
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]), CAST(:accused AS bool[]))
             AS lost (job_id, start, accused)
    JOIN jobs j ON j.id = lost.job_id
    WHERE slices.job_id = lost.job_id AND slices.start = lost.start
    RETURNING slices.job_id, slices.start, j.state
""")


def reap(tx: Tx, lease_s: float) -> int:
    """Takes lost leases away from their owners; returns their number.

    The slices are claimable again, or ended where their job is being cancelled.
    """
    lost = tx.execute(_LOCK_LOST, {"lease_s": lease_s}).all()
    if not lost:
        return 0
    values = {
        "jobs": [row.job_id for row in lost],
        "starts": [row.start for row in lost],
        "accused": [row.accused for row in lost],
    }
    freed = tx.execute(_FREE, values).all()
    cancelled = {(row[0], row[1]) for row in freed if row.state == "cancelling"}
    if cancelled:
        end_slices(tx, sorted(cancelled), "cancelled")
    again = [(row.job_id, row.start) for row in lost if row.suspect and row.accused]
    quarantined = _bisect(tx, [key for key in again if key not in cancelled])
    close_finished_jobs(tx, {job for job, _ in cancelled | quarantined})  # locked once, in order
    notify_work(tx)
    return len(lost)


# Seqs of a slice without a result. OFFSET 0: one look at the results' key for each.
_PENDING = text("""
    SELECT g.seq FROM slices s, LATERAL generate_series(s.start, s.stop - 1) AS g (seq)
    WHERE s.job_id = :job AND s.start = :start
      AND NOT EXISTS (SELECT 1 FROM results r WHERE r.job_id = s.job_id AND r.seq = g.seq OFFSET 0)
    ORDER BY g.seq
""")


def _bisect(tx: Tx, slices: Sequence[_SliceKey]) -> set[_SliceKey]:
    """Splits suspects that were accused again, or counts a death against an item that was alone.

    Returns the slices that this ended.
    """
    ended = set()
    for job, start in slices:
        pending = tx.scalars(_PENDING, {"job": job, "start": start}).all()
        if len(pending) > 1:
            _split(tx, job, start, pending[len(pending) // 2])
        elif _count_death(tx, job, start) >= DEATHS_ALONE:
            _quarantine(tx, job, start, pending[0])
            ended.add((job, start))
    return ended


# The second half is a new slice; then both halves are recounted.
_HALVE = (
    text("""
        INSERT INTO slices (job_id, start, stop, tenant_id, model, version, priority, state,
                            not_before, due_at, epoch, suspect, retrying, inputs)
        SELECT job_id, :middle, stop, tenant_id, model, version, priority, state,
               not_before, due_at, epoch, suspect, retrying, inputs
        FROM slices WHERE job_id = :job AND start = :start
    """),
    text("UPDATE slices SET stop = :middle WHERE job_id = :job AND start = :start"),
    text(f"""
        UPDATE slices
        SET n_succeeded = c.succeeded, n_failed = c.failed,
            n_cancelled = c.cancelled, n_expired = c.expired, output_bytes = c.output_bytes
        FROM slices s, {COUNTS}
        WHERE s.job_id = :job AND s.start IN (:start, :middle)
          AND slices.job_id = s.job_id AND slices.start = s.start
    """),
)


def _split(tx: Tx, job: UUID, start: int, middle: int) -> None:
    for step in _HALVE:
        tx.execute(step, {"job": job, "start": start, "middle": middle})


_COUNT_DEATH = text("""
    UPDATE slices SET deaths = deaths + 1 WHERE job_id = :job AND start = :start RETURNING deaths
""")


def _count_death(tx: Tx, job: UUID, start: int) -> int:
    deaths: int = tx.scalars(_COUNT_DEATH, {"job": job, "start": start}).one()
    return deaths


_QUARANTINE = text("""
    INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units, error)
    SELECT job_id, tenant_id, :seq, 'failed', deaths, 0, :error
    FROM slices WHERE job_id = :job AND start = :start
    ON CONFLICT DO NOTHING
    RETURNING (SELECT model || '@' || version FROM slices WHERE job_id = :job AND start = :start)
""")
_WORKER_LOST = orjson.dumps(
    {
        "code": "worker_lost",
        "message": f"{DEATHS_ALONE} workers died while they ran this item alone",
    }
).decode()


def _quarantine(tx: Tx, job: UUID, start: int, seq: int) -> None:
    asked = {"job": job, "start": start, "seq": seq, "error": _WORKER_LOST}
    for model in tx.scalars(_QUARANTINE, asked):
        record.items_ended(model, "failed", 1)
        record.item_errors(model, "worker_lost", 1)
    end_slices(tx, [(job, start)], "failed")
