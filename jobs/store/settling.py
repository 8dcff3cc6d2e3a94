"""Settlement: results into rows, leases given back, jobs that are complete by it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text

from jobs.states import Outcome
from jobs.store.claims import Lease, keys
from jobs.store.db import Tx, cursor, notify_work
from jobs.store.endings import COUNTS, close_finished_jobs, end_slices


@dataclass(frozen=True, slots=True)
class Result:
    """One item's end. output, error: JSON texts. units: its size; wait_ms: in the lane."""

    job_id: UUID
    tenant: str
    seq: int
    outcome: Outcome
    units: int
    wait_ms: float | None
    launch_id: int | None
    output: str | None
    error: str | None
    attempts: int = 1


_LOCK_MINE = text("""
    SELECT s.job_id, s.start
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]), CAST(:epochs AS int[]))
             AS mine (job_id, start, epoch)
    JOIN slices s USING (job_id, start, epoch)
    WHERE s.state = 'leased'
    ORDER BY s.job_id, s.start FOR UPDATE OF s
""")

# Its columns are Result's fields, in their order.
_INSERT_RESULTS = """
    INSERT INTO results (job_id, tenant_id, seq, outcome, units, wait_ms, launch_id, output, error,
                         attempts)
    SELECT * FROM unnest(%b::uuid[], %b::text[], %b::int[], %b::text[]::outcome[], %b::int[],
                         %b::real[], %b::bigint[], %b::text[], %b::text[], %b::smallint[])
    ON CONFLICT DO NOTHING
"""

# The counters are told from the rows, once a slice: whatever was written before, by whom, they
# are right. A slice with a result for every seq is done; any other goes back, at no cost.
_SETTLE = text(f"""
    UPDATE slices
    SET state = CASE WHEN c.total = s.stop - s.start THEN 'done'
                     WHEN j.state = 'paused' THEN 'held' ELSE 'ready' END,
        finished_at = CASE WHEN c.total = s.stop - s.start THEN now() END,
        lease_owner = NULL, lease_until = NULL,
        n_succeeded = c.succeeded, n_failed = c.failed,
        n_cancelled = c.cancelled, n_expired = c.expired
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS mine (job_id, start)
    JOIN slices s USING (job_id, start)
    JOIN jobs j ON j.id = mine.job_id,
    {COUNTS}
    WHERE slices.job_id = mine.job_id AND slices.start = mine.start
    RETURNING slices.job_id, slices.start, slices.state, j.state AS job_state
""")


def settle(tx: Tx, leases: Sequence[Lease], results: Sequence[Result]) -> int:
    """Gives leases back with what was computed: a slice that has all its results is done, any
    other is claimable again at no cost. Jobs that are complete by this end here.

    A lease that is no longer ours writes nothing. Returns the number of leases that were ours.
    """
    mine = {(row[0], row[1]) for row in tx.execute(_LOCK_MINE, keys(leases))}
    kept = results if len(mine) == len(leases) else _fenced(leases, mine, results)
    if kept:
        cursor(tx).execute(_INSERT_RESULTS, _columns(kept))
    if not mine:
        return 0
    values = {"jobs": [job for job, _ in mine], "starts": [start for _, start in mine]}
    settled = tx.execute(_SETTLE, values).all()
    ended = {job for job, _, state, _ in settled if state == "done"}
    released = [row for row in settled if row.state == "ready"]
    if cancelled := [(row[0], row[1]) for row in released if row.job_state == "cancelling"]:
        end_slices(tx, cancelled, "cancelled")
        ended |= {job for job, _ in cancelled}
    if len(released) > len(cancelled):
        notify_work(tx)
    close_finished_jobs(tx, ended)
    return len(mine)


def _fenced(
    leases: Sequence[Lease], mine: set[tuple[UUID, int]], results: Sequence[Result]
) -> list[Result]:
    ranges: dict[UUID, list[range]] = {}
    for lease in leases:
        if (lease.job_id, lease.start) in mine:
            ranges.setdefault(lease.job_id, []).append(range(lease.start, lease.stop))
    return [r for r in results if any(r.seq in span for span in ranges.get(r.job_id, ()))]


def _columns(results: Sequence[Result]) -> list[list[object]]:
    return [[getattr(result, name) for result in results] for name in Result.__slots__]
