"""Leases that ran out or whose worker ended, and their slices: freed, bisected, quarantined.

A slice is freed at no cost where its worker stopped, was killed from outside, or lives and only
lost the lease. It is accused where the worker crashed or hung: then it becomes suspect and runs
alone; accused again it is split, and its halves stay suspect; an item that is accused three times
while it is alone is quarantined. So n items cost at most log2(n) + 5 deaths.
"""

from collections.abc import Sequence
from uuid import UUID

import orjson
from sqlalchemy import literal, select, text, update
from sqlalchemy.dialects.postgresql import insert

from jobs.store.db import Tx, notify_work
from jobs.store.queue.clock_watch import ClockWatch
from jobs.store.queue.finish import SliceKey, close_finished_jobs, end_slices, key_arrays
from jobs.store.queue.split import is_slice, pending_seqs, split
from jobs.store.tables import results
from jobs.store.tables import slices as table
from jobs.telemetry.metrics import record

DEATHS_ALONE = 3
"""Deaths of workers that ran an item alone after which it is not tried again."""

# A worker is dead when its supervisor says so, or when both have been silent. After an outage of
# the database everybody gets a lease's time to renew: nobody could before. Locked slices are in
# use. Written out for its lock of one table of a join.
_LOCK_LOST = text("""
    SELECT s.job_id, s.start, s.suspect, w.ended_at IS NULL AS lapsed,
           coalesce(w.died IN ('crashed', 'hung'),
                    w.ended_at IS NULL
                        AND greatest(w.heartbeat_at, w.watched_at)
                            < now() - make_interval(secs => :lease_s),
                    false) AS accused,
           coalesce(w.died = 'sick', false) AS sick
    FROM slices s LEFT JOIN workers w ON w.incarnation = s.lease_owner
    WHERE s.state = 'leased'
      AND (w.ended_at IS NOT NULL
           OR s.lease_until < now()
              AND pg_postmaster_start_time() < now() - make_interval(secs => :lease_s))
    ORDER BY s.job_id, s.start LIMIT 1000 FOR UPDATE OF s SKIP LOCKED
""")

# The epoch fences off the former owner. A slice of a paused job is held. Written out for its
# arrays.
_FREE = text("""
    UPDATE slices
    SET state = CASE WHEN j.state = 'paused' THEN 'held' ELSE 'ready' END,
        epoch = epoch + 1, lease_owner = NULL, lease_until = NULL,
        suspect = suspect OR lost.suspected
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]), CAST(:suspected AS bool[]))
             AS lost (job_id, start, suspected)
    JOIN jobs j ON j.id = lost.job_id
    WHERE slices.job_id = lost.job_id AND slices.start = lost.start
    RETURNING slices.job_id, slices.start, j.state
""")


def reap(tx: Tx, lease_s: float, watch: ClockWatch | None = None) -> int:
    """Takes lost leases away from their owners; returns their number.

    The slices are claimable again, or ended where their job is being cancelled. `watch`: leases
    that ran out are kept while it isn't steady, so that they can be renewed.
    """
    steady = watch is None or watch.is_steady(tx)
    lost = tx.execute(_LOCK_LOST, {"lease_s": lease_s}).all()
    lost = [row for row in lost if steady or not row.lapsed]
    if not lost:
        return 0
    keys = key_arrays([(row.job_id, row.start) for row in lost])
    # What was in a sick device runs alone next: if that fails as well, it is the cause.
    suspected = [row.accused or row.sick for row in lost]
    freed = tx.execute(_FREE, keys | {"suspected": suspected}).all()
    cancelled = {(row[0], row[1]) for row in freed if row.state == "cancelling"}
    if cancelled:
        end_slices(tx, sorted(cancelled), "cancelled")
    again = [(row.job_id, row.start) for row in lost if row.suspect and row.accused]
    quarantined = _bisect(tx, [key for key in again if key not in cancelled])
    close_finished_jobs(tx, {job for job, _ in cancelled | quarantined})  # locked once, in order
    notify_work(tx)
    return len(lost)


def _bisect(tx: Tx, slices: Sequence[SliceKey]) -> set[SliceKey]:
    """Splits suspects that were accused again, or counts a death against an item that was alone.

    Returns the slices that this ended.
    """
    ended = set()
    for job, start in slices:
        pending = pending_seqs(tx, job, start)
        if len(pending) > 1:
            split(tx, job, start, pending[len(pending) // 2], table.c.state)
        elif _count_death(tx, job, start) >= DEATHS_ALONE:
            _quarantine(tx, job, start, pending[0])
            ended.add((job, start))
    return ended


def _count_death(tx: Tx, job: UUID, start: int) -> int:
    died = update(table).where(is_slice(job, start)).values(deaths=table.c.deaths + 1)
    deaths: int = tx.scalars(died.returning(table.c.deaths)).one()
    return deaths


_WORKER_LOST = orjson.dumps(
    {
        "code": "worker_lost",
        "message": f"{DEATHS_ALONE} workers died while they ran this item alone",
    }
).decode()


def _quarantine(tx: Tx, job: UUID, start: int, seq: int) -> None:
    s = table.c
    lost = {"seq": seq, "outcome": "failed", "units": 0, "error": _WORKER_LOST}
    values = [literal(value, results.c[name].type) for name, value in lost.items()]
    row = select(s.job_id, s.tenant_id, s.deaths, *values)
    names = ["job_id", "tenant_id", "attempts", *lost]
    failed = insert(results).from_select(
        names, row.where(is_slice(job, start)), include_defaults=False
    )
    if tx.execute(failed.on_conflict_do_nothing()).rowcount:
        model = tx.scalars(select(s.model + "@" + s.version).where(is_slice(job, start))).one()
        record.items_ended(model, "failed", 1)
        record.item_errors(model, "worker_lost", 1)
    end_slices(tx, [(job, start)], "failed")
