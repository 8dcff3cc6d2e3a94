"""Settlement: writes results, gives leases back, ends jobs that are complete by it. What ended of a
slice that goes on is recorded on its own."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from uuid import UUID

from sqlalchemy import Row, TextClause, text

from jobs.models.inputs.generation import TokenUsage
from jobs.models.pricing import Price
from jobs.states import Outcome
from jobs.store.billing.ledger import BILL_ITEMS, item_columns
from jobs.store.db import Tx, array_text, cursor, notify_work
from jobs.store.queue import checkpoints, fair_share
from jobs.store.queue.checkpoints import Piece
from jobs.store.queue.claim import Lease, lock_held
from jobs.store.queue.finish import (
    COUNTS,
    SET_COUNTS,
    SliceKey,
    close_finished_jobs,
    end_slices,
    key_arrays,
)


@dataclass(slots=True)  # a frozen one takes twice the time to make
class Result:
    """End of one item."""

    job_id: UUID  #: its job
    tenant: str  #: tenant of the job
    seq: int  #: place of the item in its job, from 0
    outcome: Outcome  #: how it ended
    units: int  #: its size
    wait_ms: float | None  #: time in its lane, ms
    launch_id: int | None  #: launch that it ended in
    output: str | bytes | None  #: JSON, a reference to the blob store, or a packed vector
    error: str | None  #: JSON object
    attempts: int = 1  #: attempts that it took
    device_us: int = 0  #: its share of the launch, µs
    tokens: TokenUsage | None = None  #: billed tokens, of a model that generates
    truncated: int = 0  #: tokens of its text that were cut away, of an item that succeeded


@dataclass(frozen=True, slots=True)
class Attempt:
    """Failure of one item that is not final."""

    job_id: UUID  #: its job
    tenant: str  #: tenant of the job
    seq: int  #: place of the item in its job, from 0
    n: int  #: number of the attempt, from 1
    error: str  #: JSON object
    launch_id: int | None  #: launch that it failed in
    delay_s: float  #: time until the next attempt, s
    device_us: int = 0  #: its share of the launch, µs; charged to the tenant, not stored


class Timed(Protocol):
    """Work on one item that took device time."""

    @property
    def job_id(self) -> UUID:
        """Job of the item."""
        ...

    @property
    def tenant(self) -> str:
        """Tenant of the job."""
        ...

    @property
    def seq(self) -> int:
        """Place of the item in its job."""
        ...

    @property
    def device_us(self) -> int:
        """Time that it took, µs."""
        ...


R = TypeVar("R", bound=Timed)

# All statements of a settlement are written out: they take arrays of slices and of results, one
# round trip each, unless the outputs are long.

# Bytes of outputs in a statement. The driver moves all that is left of a statement for each piece
# that the socket takes, while it holds the GIL: one of 12 MB is copied thirty times.
_STATEMENT_BYTES = 1 << 20

# Parameters: values that all results share, or nulls; the fields of Result as arrays, those of such
# values first, packed vectors apart from texts; then those of BILL_ITEMS. Shorter arrays go on with
# nulls: empty ones stand for shared values, or for none. One statement writes the results and bills
# those that were really inserted, so that a result that is offered twice is billed once.
_INSERT_RESULTS = f"""
    WITH recorded AS (
        INSERT INTO results (job_id, tenant_id, seq, outcome, units, wait_ms, launch_id, output,
                             vector, error, attempts, device_us, input_tokens, cached_tokens,
                             output_tokens, truncated)
        SELECT coalesce(job_id, %b::uuid), coalesce(tenant_id, %b), seq,
               coalesce(outcome, %b::outcome), units, wait_ms, launch_id, output, vector, error,
               coalesce(attempts, %b::smallint), device_us, input_tokens, cached_tokens,
               output_tokens, nullif(truncated, 0)
        FROM unnest(%b::uuid[], %b::text[], %b::outcome[], %b::smallint[],
                    %b::int[], %b::int[], %b::real[], %b::bigint[],
                    %b::text[], %b::bytea[], %b::text[], %b::bigint[],
                    %b::int[], %b::int[], %b::int[], %b::int[])
             AS r (job_id, tenant_id, outcome, attempts, seq, units, wait_ms, launch_id,
                   output, vector, error, device_us, input_tokens, cached_tokens, output_tokens,
                   truncated)
        ON CONFLICT DO NOTHING
        RETURNING job_id, seq, outcome, units, device_us, input_tokens, cached_tokens,
                  output_tokens
    ), {BILL_ITEMS}
"""

_INSERT_ATTEMPTS = """
    INSERT INTO attempts (job_id, tenant_id, seq, n, error, launch_id, due_at)
    SELECT job_id, tenant_id, seq, n, error, launch_id, now() + make_interval(secs => delay_s)
    FROM unnest(%b::uuid[], %b::text[], %b::int[], %b::smallint[], %b::text[], %b::bigint[],
                %b::float8[]) AS a (job_id, tenant_id, seq, n, error, launch_id, delay_s)
    ON CONFLICT DO NOTHING
"""

# The counters are recounted from the results, once a slice: they are right whatever was written
# before. A slice with a result for every seq is done; any other goes back at no cost.
_SETTLE = text(f"""
    UPDATE slices
    SET state = CASE WHEN c.total = s.stop - s.start THEN 'done'
                     WHEN j.state = 'paused' THEN 'held' ELSE 'ready' END,
        finished_at = CASE WHEN c.total = s.stop - s.start THEN now() END,
        lease_owner = NULL, lease_until = NULL, charged_ms = 0, {SET_COUNTS}
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS mine (job_id, start)
    JOIN slices s USING (job_id, start)
    JOIN jobs j ON j.id = mine.job_id,
    {COUNTS}
    WHERE slices.job_id = mine.job_id AND slices.start = mine.start
    RETURNING slices.job_id, slices.start, slices.state, slices.stop, slices.retrying,
              j.state AS job_state, slices.tenant_id, s.charged_ms
""")

# A slice is ready again when the first of its items is: at once where one was never tried. OFFSET
# 0: one look at the results' key for each item, as in `claim`.
_POSTPONE = """
    UPDATE slices SET retrying = true, not_before = greatest(w.due_at, now())
    FROM (SELECT s.job_id, s.start, min(coalesce(a.due_at, '-infinity')) AS due_at
          FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS mine (job_id, start)
          JOIN slices s USING (job_id, start),
          LATERAL generate_series(s.start, s.stop - 1) AS g (seq)
          LEFT JOIN LATERAL (SELECT max(due_at) AS due_at FROM attempts
                             WHERE attempts.job_id = s.job_id AND attempts.seq = g.seq) AS a ON true
          WHERE NOT EXISTS (SELECT 1 FROM results r WHERE r.job_id = s.job_id AND r.seq = g.seq
                            OFFSET 0) {unless}
          GROUP BY s.job_id, s.start) AS w
    WHERE slices.job_id = w.job_id AND slices.start = w.start
"""


def postpone_query(unless: str = "") -> TextClause:
    """Returns the statement by which slices wait for the next attempts of their items. unless:
    SELECT of what ends the wait for an item (s: its slice, g: its seq), besides a result."""
    return text(_POSTPONE.format(unless=unless and f"AND NOT EXISTS ({unless})"))


_POSTPONE_ITEMS = postpone_query()


def settle(
    tx: Tx,
    leases: Sequence[Lease],
    results: Sequence[Result],
    attempts: Sequence[Attempt] = (),
    prices: Mapping[str, Price] = MappingProxyType({}),
    *,
    pool: str = "default",
    progress: Sequence[Piece] = (),
    used: Sequence[Timed] = (),
    postpone: TextClause = _POSTPONE_ITEMS,
) -> int:
    """Gives leases back with their results; returns the number of leases that were still held.

    A slice that has all its results is done; any other is claimable again, at once or when its next
    attempt is due. Jobs that are complete by this end here. A lost lease writes nothing. prices: by
    name@version, for the ledger; a model without one is free. pool: pool whose tenants were charged
    at the claim; what they used beyond it is added. progress: output since the last checkpoint, of
    items that go on elsewhere. used: what took time besides results and attempts. postpone: makes
    slices wait for attempts, see `postpone_query`.
    """
    mine, results, attempts = _insert(tx, leases, results, attempts, prices)
    if not mine:
        return 0
    if progress:
        held = [lease for lease in leases if (lease.job_id, lease.start) in mine]
        checkpoints.insert(tx, held, progress)
    settled = tx.execute(_SETTLE, key_arrays(mine)).all()
    ended = {row.job_id for row in settled if row.state == "done"}
    released = [row for row in settled if row.state != "done"]
    if cancelled := [(row[0], row[1]) for row in released if row.job_state == "cancelling"]:
        end_slices(tx, cancelled, "cancelled")
        ended |= {job for job, _ in cancelled}
    waiting = [row for row in released if row.job_state != "cancelling"]
    _postpone(tx, waiting, attempts, postpone)
    if any(row.state == "ready" for row in waiting):
        notify_work(tx)
    close_finished_jobs(tx, ended)
    fair_share.correct(tx, pool, _uncharged_ms(settled, [*results, *attempts, *used]))
    return len(mine)


# The slice stays leased. What it used is taken off what it was charged at the claim: the settlement
# corrects by the rest.
_COUNT = text(f"""
    UPDATE slices
    SET charged_ms = slices.charged_ms - mine.used_ms, retrying = slices.retrying OR mine.failed,
        {SET_COUNTS}
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]), CAST(:used_ms AS real[]),
                CAST(:failed AS bool[])) AS mine (job_id, start, used_ms, failed)
    JOIN slices s USING (job_id, start),
    {COUNTS}
    WHERE slices.job_id = mine.job_id AND slices.start = mine.start
""")


def record(
    tx: Tx,
    leases: Sequence[Lease],
    results: Sequence[Result],
    attempts: Sequence[Attempt] = (),
    prices: Mapping[str, Price] = MappingProxyType({}),
    *,
    used: Sequence[Timed] = (),
) -> int:
    """Writes what ended of slices that go on; returns the number of leases that are still held.

    A lost lease writes nothing. prices, used: as for `settle`.
    """
    mine, results, attempts = _insert(tx, leases, results, attempts, prices)
    if mine:
        held = [lease for lease in leases if (lease.job_id, lease.start) in mine]
        took: Sequence[Timed] = [*results, *attempts, *used]
        failed = [_within(_ranges([lease]), attempts) for lease in held]
        values = key_arrays([(lease.job_id, lease.start) for lease in held])
        values["used_ms"] = [
            sum(one.device_us for one in _within(_ranges([lease]), took)) / 1000 for lease in held
        ]
        values["failed"] = [bool(again) for again in failed]
        tx.execute(_COUNT, values)
    return len(mine)


def _insert(
    tx: Tx,
    leases: Sequence[Lease],
    results: Sequence[Result],
    attempts: Sequence[Attempt],
    prices: Mapping[str, Price],
) -> tuple[set[SliceKey], Sequence[Result], Sequence[Attempt]]:
    """Locks the slices of leases that are still held, and writes their rows; returns both."""
    mine = lock_held(tx, leases)
    if len(mine) < len(leases):
        ranges = _ranges(lease for lease in leases if (lease.job_id, lease.start) in mine)
        results, attempts = _within(ranges, results), _within(ranges, attempts)
    if results:
        terms = [(one.job_id, one.start, one.tenant, one.model, one.job_class) for one in leases]
        billed = item_columns(terms, prices)
        for piece in _pieces(results):
            cursor(tx).execute(_INSERT_RESULTS, [*_result_columns(piece), *billed])
        if any(result.tokens for result in results):
            checkpoints.delete_ended(tx, mine)
    if attempts:
        names = Attempt.__slots__[:-1]
        columns = [[getattr(attempt, name) for attempt in attempts] for name in names]
        cursor(tx).execute(_INSERT_ATTEMPTS, columns)
    return mine, results, attempts


def _uncharged_ms(settled: Sequence[Row[Any]], ended: Sequence[Timed]) -> dict[str, float]:
    """Device time by tenant, ms: the time that was used less that charged at the claim."""
    used: dict[str, float] = {}
    for row in settled:
        used[row.tenant_id] = used.get(row.tenant_id, 0.0) - row.charged_ms
    for one in ended:
        used[one.tenant] = used.get(one.tenant, 0.0) + one.device_us / 1000
    return used


def _postpone(
    tx: Tx, released: Sequence[Row[Any]], attempts: Sequence[Attempt], query: TextClause
) -> None:
    failed = {(attempt.job_id, attempt.seq) for attempt in attempts}
    waiting = [
        (row.job_id, row.start)
        for row in released
        if row.retrying or any((row.job_id, seq) in failed for seq in range(row.start, row.stop))
    ]
    if waiting:
        tx.execute(query, key_arrays(waiting))


def _ranges(leases: Iterable[Lease]) -> dict[UUID, list[range]]:
    ranges: dict[UUID, list[range]] = {}
    for lease in leases:
        ranges.setdefault(lease.job_id, []).append(range(lease.start, lease.stop))
    return ranges


def within(leases: Iterable[Lease], rows: Sequence[R]) -> list[R]:
    """Returns the rows of items that the slices of these leases have."""
    return _within(_ranges(leases), rows)


def _within(ranges: Mapping[UUID, list[range]], rows: Sequence[R]) -> list[R]:
    return [row for row in rows if any(row.seq in span for span in ranges.get(row.job_id, ()))]


def _pieces(results: Sequence[Result]) -> Iterator[Sequence[Result]]:
    """Yields results by statements."""
    since, size = 0, 0
    for n, result in enumerate(results):
        own = len(result.output or ())
        if size and size + own > _STATEMENT_BYTES:
            yield results[since:n]
            since, size = n, 0
        size += own
    yield results[since:]


def _result_columns(results: Sequence[Result]) -> list[object]:
    """Returns the fields of results: values that all share, then arrays."""
    errors = [result.error for result in results]
    shared = [
        _shared([result.job_id for result in results], _ids),
        _shared([result.tenant for result in results], list),
        _shared([result.outcome for result in results], array_text),
        _shared([result.attempts for result in results], array_text),
    ]
    return [
        *(value for value, _ in shared),
        *(array for _, array in shared),
        array_text([result.seq for result in results]),
        array_text([result.units for result in results]),
        array_text([result.wait_ms for result in results]),
        array_text([result.launch_id for result in results]),
        *_output_columns([result.output for result in results]),
        errors if any(errors) else "{}",
        array_text([result.device_us for result in results]),
        *_token_columns([(result.tokens, result.truncated) for result in results]),
    ]


def _shared(
    values: Sequence[object], as_array: Callable[[Sequence[Any]], object]
) -> tuple[object, object]:
    """Returns the value that all are and an empty array, or None and all of them as an array."""
    if values.count(values[0]) == len(values):
        return str(values[0]), "{}"
    return None, as_array(values)


def _ids(ids: Sequence[UUID]) -> str:
    """Returns ids as an array; each is converted once for those that follow each other."""
    texts = list[str]()
    last: UUID | None = None
    for one in ids:
        if one is not last:
            last, text_of = one, str(one)
        texts.append(text_of)
    return array_text(texts)


def _output_columns(outputs: Sequence[str | bytes | None]) -> tuple[object, object]:
    """Returns texts and vectors as arrays; an empty one where there is none of a kind."""
    kinds = set(map(type, outputs))
    if bytes not in kinds:
        return outputs, "{}"
    if kinds == {bytes}:
        return "{}", outputs
    return (
        [output if isinstance(output, str) else None for output in outputs],
        [output if isinstance(output, bytes) else None for output in outputs],
    )


def _token_columns(used: Sequence[tuple[TokenUsage | None, int]]) -> Sequence[str]:
    """Returns input, cached, output and truncated tokens as arrays; empty ones where all are."""
    tokens, cuts = zip(*used, strict=True)
    truncated = array_text(cuts) if any(cuts) else "{}"
    if not any(tokens):
        return "{}", "{}", "{}", truncated
    return (
        array_text([each and each.input for each in tokens]),
        array_text([each and each.cached for each in tokens]),
        array_text([each and each.output for each in tokens]),
        truncated,
    )
