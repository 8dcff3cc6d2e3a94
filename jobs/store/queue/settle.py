"""Settlement: results into rows, leases given back, jobs that are complete by it ended."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Row, text

from jobs.models.pricing import FREE, Price
from jobs.states import Outcome
from jobs.store.billing.ledger import BILL_ITEMS
from jobs.store.db import Tx, cursor, notify_work
from jobs.store.queue import fair_share
from jobs.store.queue.claim import Lease, lease_arrays
from jobs.store.queue.finish import COUNTS, close_finished_jobs, end_slices


@dataclass(frozen=True, slots=True)
class Result:
    """One item's end. output, error: JSON texts. units: its size; wait_ms: in the lane; device_us:
    its share of the launch that it ended in."""

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
    device_us: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One item's failure that is not final: its n-th, from 1; the next try comes after delay_s.
    device_us: its share of the launch that it failed in, which counts as a turn, and is no row."""

    job_id: UUID
    tenant: str
    seq: int
    n: int
    error: str
    launch_id: int | None
    delay_s: float
    device_us: int = 0


R = TypeVar("R", Result, Attempt)

_LOCK_MINE = text("""
    SELECT s.job_id, s.start
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]), CAST(:epochs AS int[]))
             AS mine (job_id, start, epoch)
    JOIN slices s USING (job_id, start, epoch)
    WHERE s.state = 'leased'
    ORDER BY s.job_id, s.start FOR UPDATE OF s
""")

# Its columns are Result's fields, in their order; then those of the leases. What it inserts goes
# into the ledger, and nothing else does.
_INSERT_RESULTS = f"""
    WITH recorded AS (
        INSERT INTO results (job_id, tenant_id, seq, outcome, units, wait_ms, launch_id, output,
                             error, attempts, device_us)
        SELECT * FROM unnest(%b::uuid[], %b::text[], %b::int[], %b::text[]::outcome[], %b::int[],
                             %b::real[], %b::bigint[], %b::text[], %b::text[], %b::smallint[],
                             %b::bigint[])
        ON CONFLICT DO NOTHING
        RETURNING job_id, seq, outcome, units, device_us
    ), {BILL_ITEMS}
"""

_INSERT_ATTEMPTS = """
    INSERT INTO attempts (job_id, tenant_id, seq, n, error, launch_id, due_at)
    SELECT job_id, tenant_id, seq, n, error, launch_id, now() + make_interval(secs => delay_s)
    FROM unnest(%b::uuid[], %b::text[], %b::int[], %b::smallint[], %b::text[], %b::bigint[],
                %b::float8[]) AS a (job_id, tenant_id, seq, n, error, launch_id, delay_s)
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
        n_cancelled = c.cancelled, n_expired = c.expired, charged_ms = 0,
        output_bytes = c.output_bytes
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS mine (job_id, start)
    JOIN slices s USING (job_id, start)
    JOIN jobs j ON j.id = mine.job_id,
    {COUNTS}
    WHERE slices.job_id = mine.job_id AND slices.start = mine.start
    RETURNING slices.job_id, slices.start, slices.state, slices.stop, slices.retrying,
              j.state AS job_state, slices.tenant_id, s.charged_ms
""")

# A slice is ready again when the first of its items is: at once where one was never tried. OFFSET 0
# as in `claims`: one look at the index for each item.
_POSTPONE = text("""
    UPDATE slices SET retrying = true, not_before = greatest(w.due_at, now())
    FROM (SELECT s.job_id, s.start, min(coalesce(a.due_at, '-infinity')) AS due_at
          FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS mine (job_id, start)
          JOIN slices s USING (job_id, start),
          LATERAL generate_series(s.start, s.stop - 1) AS g (seq)
          LEFT JOIN LATERAL (SELECT max(due_at) AS due_at FROM attempts
                             WHERE attempts.job_id = s.job_id AND attempts.seq = g.seq) AS a ON true
          WHERE NOT EXISTS (SELECT 1 FROM results r WHERE r.job_id = s.job_id AND r.seq = g.seq
                            OFFSET 0)
          GROUP BY s.job_id, s.start) AS w
    WHERE slices.job_id = w.job_id AND slices.start = w.start
""")


def settle(
    tx: Tx,
    leases: Sequence[Lease],
    results: Sequence[Result],
    attempts: Sequence[Attempt] = (),
    prices: Mapping[str, Price] = MappingProxyType({}),
    *,
    pool: str = "default",
) -> int:
    """Gives leases back with what was computed: a slice that has all its results is done, any
    other is claimable again at no cost, or when its next attempt is due. Jobs that are complete
    by this end here. prices: by name@version, for the ledger; what has none is free.

    pool: where its tenants were charged at the claim; what they used beyond it is added.
    A lease that is no longer ours writes nothing. Returns the number of leases that were ours.
    """
    mine = {(row[0], row[1]) for row in tx.execute(_LOCK_MINE, lease_arrays(leases))}
    if len(mine) < len(leases):
        ranges = _ranges(lease for lease in leases if (lease.job_id, lease.start) in mine)
        results, attempts = _within(ranges, results), _within(ranges, attempts)
    if results:
        columns = [*_columns(Result, results), *item_columns(leases, prices)]
        cursor(tx).execute(_INSERT_RESULTS, columns)
    if attempts:
        cursor(tx).execute(_INSERT_ATTEMPTS, _columns(Attempt, attempts)[:-1])
    if not mine:
        return 0
    settled = tx.execute(_SETTLE, _slice_keys(mine)).all()
    ended = {row.job_id for row in settled if row.state == "done"}
    released = [row for row in settled if row.state != "done"]
    if cancelled := [(row[0], row[1]) for row in released if row.job_state == "cancelling"]:
        end_slices(tx, cancelled, "cancelled")
        ended |= {job for job, _ in cancelled}
    _postpone(tx, [row for row in released if row.job_state != "cancelling"], attempts)
    if any(row.state == "ready" and row.job_state != "cancelling" for row in released):
        notify_work(tx)
    close_finished_jobs(tx, ended)
    fair_share.correct(tx, pool, _uncharged_ms(settled, [*results, *attempts]))
    return len(mine)


def _uncharged_ms(
    settled: Sequence[Row[Any]], ended: Sequence[Result | Attempt]
) -> dict[str, float]:
    """By tenant: the device time that was used, less what was charged for it at the claim."""
    used: dict[str, float] = {}
    for row in settled:
        used[row.tenant_id] = used.get(row.tenant_id, 0.0) - row.charged_ms
    for one in ended:
        used[one.tenant] = used.get(one.tenant, 0.0) + one.device_us / 1000
    return used


def _postpone(tx: Tx, released: Sequence[Row[Any]], attempts: Sequence[Attempt]) -> None:
    failed = {(attempt.job_id, attempt.seq) for attempt in attempts}
    waiting = [
        (row.job_id, row.start)
        for row in released
        if row.retrying or any((row.job_id, seq) in failed for seq in range(row.start, row.stop))
    ]
    if waiting:
        tx.execute(_POSTPONE, _slice_keys(waiting))


def _slice_keys(slices: Collection[tuple[UUID, int]]) -> dict[str, Any]:
    return {"jobs": [job for job, _ in slices], "starts": [start for _, start in slices]}


def _ranges(leases: Iterable[Lease]) -> dict[UUID, list[range]]:
    ranges: dict[UUID, list[range]] = {}
    for lease in leases:
        ranges.setdefault(lease.job_id, []).append(range(lease.start, lease.stop))
    return ranges


def _within(ranges: Mapping[UUID, list[range]], rows: Sequence[R]) -> list[R]:
    return [row for row in rows if any(row.seq in span for span in ranges.get(row.job_id, ()))]


def _columns(kind: type[R], rows: Sequence[R]) -> list[list[object]]:
    names: tuple[str, ...] = kind.__slots__
    return [[getattr(row, name) for row in rows] for name in names]


def item_columns(leases: Sequence[Lease], prices: Mapping[str, Price]) -> list[list[Any]]:
    """The parameters of BILL_ITEMS. prices: by name@version; what has none is free."""
    rows = []
    for lease in leases:
        name, _, version = lease.model.rpartition("@")
        rates = prices.get(lease.model, FREE).rates(lease.job_class)
        of = lease.job_id, lease.start, lease.tenant, name, version, lease.job_class
        rows.append((*of, *rates))
    return [list(column) for column in zip(*rows, strict=True)]
