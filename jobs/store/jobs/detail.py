"""Parts of one job: its slices, how its items ended, the items themselves, its launches.

A job may have millions of items. Its slices count how many of them ended how: a query for the
failed ones looks only into slices that have some, by the primary key.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Double, bindparam, cast, func, select, text

from jobs.states import Outcome
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.queue.workers import LaunchRow
from jobs.store.tables import attempts as attempt_table
from jobs.store.tables import items as item_table
from jobs.store.tables import launches as launch_table
from jobs.store.tables import results as result_table
from jobs.store.tables import slices as slice_table
from jobs.store.tables import workers
from jobs.vectors import MARK

MOST_COUNTED = 10_000
"""Most failed items, and most launches, that are summed up: the first ones."""


@dataclass(frozen=True, slots=True)
class SliceRow:
    """A slice of a job, and the worker that had it last."""

    start: int  #: seq of its first item
    stop: int  #: seq after its last item
    state: str  #: ready, leased, held or done
    not_before: datetime  #: time from which it is claimable
    epoch: int  #: number of its claims and releases
    lease_until: datetime | None  #: end of its lease
    deaths: int  #: workers that died while they ran it alone
    suspect: bool  #: True if a worker died with it: it runs alone
    retrying: bool  #: True if some of its items failed before
    due_at: datetime  #: place among the slices of its tenant
    worker: int | None  #: incarnation that claimed it last
    claimed_at: datetime | None  #: time of that claim
    finished_at: datetime | None  #: time of its end
    n_succeeded: int  #: items that succeeded
    n_failed: int  #: items that failed
    n_cancelled: int  #: items that were cancelled
    n_expired: int  #: items that expired
    worker_name: str | None  #: name of that worker
    read_at: datetime  #: time of this reading, by the database's clock


@dataclass(frozen=True, slots=True)
class SliceRun(SliceRow):
    """The last claim of a slice that runs or is done."""

    worker: int  #: incarnation that claimed it
    claimed_at: datetime  #: time of that claim


@dataclass(frozen=True, slots=True)
class SliceStates:
    """Slices of a job that are in one state."""

    state: str  #: ready, leased, held or done
    slices: int  #: number of them
    deliveries: int  #: number of their claims and releases


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """Failed items of a job that have the same error code."""

    code: str | None  #: code of their error
    items: int  #: number of them
    first_seq: int  #: seq of the first one
    first_message: str | None  #: message of the first one


@dataclass(frozen=True, slots=True)
class ListedItem:
    """An item in a list; long values are cut."""

    seq: int  #: place in its job, from 0
    custom_id: str | None  #: id that its client gave it
    input: str  #: beginning of the JSON, or a reference to the blob store
    outcome: Outcome | None  #: how it ended; None: not yet
    attempts: int | None  #: attempts that it took
    wait_ms: float | None  #: time in its lane, ms
    output: str | None  #: beginning of the JSON or of a vector, or a reference to the blob store
    error: str | None  #: JSON object
    slice_state: str | None  #: state of its slice


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """A failure of an item that was not final."""

    n: int  #: number of the attempt, from 1
    error: str  #: JSON object
    at: datetime  #: time of the failure
    due_at: datetime  #: time of the next attempt
    launch_id: int | None  #: launch that it failed in


@dataclass(frozen=True, slots=True)
class JobLaunch(LaunchRow):
    """A launch that items of a job ended in."""

    worker_name: str | None = None  #: name of its worker
    own: int = 0  #: items of the job in it


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """Sums over the launches of a job."""

    launches: int  #: number of launches
    mean_size: float  #: mean number of entries
    padding_share: float  #: padding by computed units, 0..1
    engine_ms: float  #: time on the device, ms


@dataclass(frozen=True, slots=True)
class ItemRow(ListedItem):
    """One item, its values whole, with its slice, launch and job; None: not yet."""

    params: str | None  #: JSON object; params of its own
    version: str  #: version of the model, that of its slice
    epoch: int  #: number of the slice's claims and releases
    worker: int | None  #: incarnation that claimed the slice last
    claimed_at: datetime | None  #: time of that claim
    slice_finished_at: datetime | None  #: end of the slice
    suspect: bool  #: True if a worker died with the slice
    deaths: int  #: workers that died while they ran the slice alone
    units: int | None  #: its size
    truncated: int | None  #: tokens of its text that were cut away; None: none
    launch_id: int | None  #: launch that it ended in
    items: int | None  #: items in that launch
    calls: int | None  #: calls in that launch
    reason: str | None  #: flush reason of that launch
    bucket: int | None  #: padded length or size of that launch
    launch_units: int | None  #: units of the launch's entries
    padded_units: int | None  #: units that the device computed
    predicted_ms: float | None  #: predicted time of the launch, ms
    batch_ms: float | None  #: time from closing the launch until the device had it, ms
    engine_ms: float | None  #: time of the launch on the device, ms
    started_at: datetime | None  #: start of the launch
    incarnation: int | None  #: worker of the launch
    created_at: datetime  #: submission of its job
    queued_at: datetime | None  #: time at which the job's items were read, if later
    read_at: datetime  #: time of this reading, by the database's clock
    failures: int | None  #: failures that were not final
    last_failure: str | None  #: JSON object; error of the last of them
    backoff_s: float | None  #: time from that failure to the next attempt, s


# Written out: six tables joined by their keys, one row of each. The slice is the one whose range
# holds the seq; the last failure is the first row of the attempts' key read backwards.
_ITEM = text(f"""
    SELECT i.seq, i.custom_id, i.input, r.outcome, r.attempts, r.wait_ms,
           {queries.OUTPUT} AS output, r.error,
           s.state AS slice_state, i.params, {queries.VERSION_OF_SLICE} AS version, s.epoch,
           s.worker, s.claimed_at,
           s.finished_at AS slice_finished_at, s.suspect, s.deaths, r.units, r.truncated,
           r.launch_id,
           l.items, l.calls, l.reason, l.bucket, l.units AS launch_units, l.padded_units,
           l.predicted_ms, l.batch_ms, l.engine_ms, l.started_at, l.incarnation,
           j.created_at, j.queued_at, now() AS read_at,
           f.failures, f.error AS last_failure, f.backoff_s
    FROM items i
    JOIN jobs j ON j.id = i.job_id
    JOIN slices s ON s.job_id = i.job_id AND s.start <= i.seq AND s.stop > i.seq
    LEFT JOIN results r ON r.job_id = i.job_id AND r.seq = i.seq
    LEFT JOIN launches l ON l.id = r.launch_id
    LEFT JOIN LATERAL (
        SELECT n AS failures, error, extract(epoch FROM due_at - at)::float8 AS backoff_s
        FROM attempts a WHERE a.job_id = i.job_id AND a.seq = i.seq ORDER BY n DESC LIMIT 1
    ) AS f ON true
    WHERE i.job_id = :job AND i.tenant_id = :tenant AND i.seq = :seq
""")


def item(tx: Tx, tenant: str, job: UUID, seq: int) -> ItemRow | None:
    """Returns one item, or None."""
    return queries.one(tx, ItemRow, _ITEM, {"tenant": tenant, "job": job, "seq": seq})


_s = slice_table.c
_RUNNER = workers.c.incarnation == _s.worker
_SLICES = select(*queries.columns(SliceRow, slice_table), workers.c.name, func.now()).join(
    workers, _RUNNER, isouter=True
)


def slices(tx: Tx, tenant: str, job: UUID, *, after: int = -1, limit: int) -> Sequence[SliceRow]:
    """Lists slices in their order; after: the start of the last one of the page before."""
    query = _SLICES.where(_s.job_id == job, queries.is_own(slice_table))
    in_order = queries.page(query, _s.start, after, limit, ascending=True)
    return queries.many(tx, SliceRow, in_order, {"tenant": tenant})


def runs(tx: Tx, tenant: str, job: UUID, limit: int) -> Sequence[SliceRun]:
    """Lists the slices that were claimed last and run or are done, in the order of their claims."""
    query = _SLICES.where(
        _s.job_id == job, queries.is_own(slice_table), _s.claimed_at.is_not(None),
        _s.state.in_(("leased", "done")),
    )  # fmt: skip
    latest = query.order_by(_s.claimed_at.desc(), _s.start.desc()).limit(limit)
    return queries.many(tx, SliceRun, latest, {"tenant": tenant})[::-1]


def slice_states(tx: Tx, tenant: str, job: UUID) -> Sequence[SliceStates]:
    """Counts the slices of a job by their state."""
    query = select(_s.state, func.count(), func.sum(_s.epoch)).group_by(_s.state)
    own = query.where(_s.job_id == job, queries.is_own(slice_table))
    return queries.many(tx, SliceStates, own, {"tenant": tenant})


# The failed items of each slice that has any. Written out for OFFSET 0: one look into each slice,
# in their order, whatever the statistics say; a join would scan all results of the job.
_CODES = text(f"""
    SELECT code, count(*) AS items, min(seq) AS first_seq,
           (array_agg(message ORDER BY seq))[1] AS first_message
    FROM (SELECT seq, CAST(error AS json) ->> 'code' AS code,
                 CAST(error AS json) ->> 'message' AS message
          FROM (SELECT r.* FROM slices s
                CROSS JOIN LATERAL (
                    SELECT seq, error FROM results
                    WHERE job_id = :job AND tenant_id = :tenant AND seq >= s.start AND seq < s.stop
                      AND outcome = 'failed'
                    ORDER BY seq OFFSET 0) AS r
                WHERE s.job_id = :job AND s.tenant_id = :tenant AND s.n_failed > 0
                ORDER BY s.start LIMIT {MOST_COUNTED}) AS f) AS e
    GROUP BY code ORDER BY items DESC, code
""")


def error_codes(tx: Tx, tenant: str, job: UUID) -> Sequence[ErrorCode]:
    """Counts the first MOST_COUNTED failed items by error code, the most frequent first."""
    return queries.many(tx, ErrorCode, _CODES, {"tenant": tenant, "job": job})


# A page of items by their key, each with its result and the slice that holds it: the last slice
# that starts at or before it. Of a long text a list shows the beginning; a reference to the blob
# store is no longer than that. Written out as `_ITEMS_ENDED` is, which has the same columns.
_SHOWN = 200
_SHOWN_BYTES = 97  # of a vector
_ITEM_COLUMNS = f"""
    i.seq, i.custom_id, left(i.input, {_SHOWN}) AS input, r.outcome, r.attempts, r.wait_ms,
    coalesce(left(r.output, {_SHOWN}),
             '{MARK}' || encode(substr(r.vector, 1, {_SHOWN_BYTES}), 'hex')) AS output, r.error
"""
_ITEMS = text(f"""
    SELECT {_ITEM_COLUMNS}, s.state AS slice_state
    FROM (SELECT * FROM items
          WHERE job_id = :job AND tenant_id = :tenant AND seq > :after
          ORDER BY seq LIMIT :limit) AS i
    LEFT JOIN results r ON r.job_id = :job AND r.seq = i.seq
    LEFT JOIN LATERAL (SELECT state FROM slices
                       WHERE job_id = :job AND start <= i.seq ORDER BY start DESC LIMIT 1) AS s
         ON true
    ORDER BY i.seq
""")
# A page of items that ended so, from the slices that have any. OFFSET 0 as in `_CODES`.
_ITEMS_ENDED = """
    SELECT {item}, 'done' AS slice_state
    FROM (SELECT r.* FROM slices s
          CROSS JOIN LATERAL (
              SELECT * FROM results
              WHERE job_id = :job AND tenant_id = :tenant AND seq >= s.start AND seq < s.stop
                AND seq > :after AND outcome = CAST(:outcome AS outcome) {code}
              ORDER BY seq LIMIT :limit) AS r
          WHERE s.job_id = :job AND s.tenant_id = :tenant AND s.stop > :after + 1
            AND s.n_{outcome} > 0
          ORDER BY s.start, r.seq LIMIT :limit) AS r
    JOIN LATERAL (SELECT * FROM items WHERE job_id = :job AND seq = r.seq OFFSET 0) AS i ON true
    ORDER BY r.seq
"""
_OF_CODE = "AND CAST(error AS json) ->> 'code' = :code"


def items(
    tx: Tx,
    tenant: str,
    job: UUID,
    *,
    outcome: Outcome | None = None,
    code: str = "",
    after: int = -1,
    limit: int,
) -> Sequence[ListedItem]:
    """Lists items in their order; after: the seq of the last one of the page before.

    outcome: only those that ended so; code: of the failed ones, only those with that error.
    """
    values = {"tenant": tenant, "job": job, "after": after, "limit": limit}
    if outcome is None:
        return queries.many(tx, ListedItem, _ITEMS, values)
    filter = _OF_CODE if code else ""
    query = _ITEMS_ENDED.format(item=_ITEM_COLUMNS, outcome=outcome, code=filter)
    return queries.many(tx, ListedItem, text(query), values | {"outcome": outcome, "code": code})


def find_seq(tx: Tx, tenant: str, job: UUID, custom_id: str) -> int | None:
    """Returns the seq of the item with this custom_id, or None; reads all items of the job."""
    i = item_table.c
    query = select(func.min(i.seq)).where(i.job_id == job, i.custom_id == custom_id)
    found: int | None = tx.scalar(query.where(queries.is_own(item_table)), {"tenant": tenant})
    return found


def attempts(tx: Tx, tenant: str, job: UUID, seq: int) -> Sequence[AttemptRow]:
    """Lists an item's failures that were not final, in their order."""
    a = attempt_table.c
    query = select(*queries.columns(AttemptRow, attempt_table)).where(a.job_id == job, a.seq == seq)
    own = query.where(queries.is_own(attempt_table)).order_by(a.n)
    return queries.many(tx, AttemptRow, own, {"tenant": tenant})


# Results of one slice lie in few launches, and those of a launch in few slices: the last results
# are grouped by launch before the launches are looked up.
_r, _l = result_table.c, launch_table.c
_last = select(_r.launch_id).where(
    _r.job_id == bindparam("job"), queries.is_own(result_table), _r.launch_id.is_not(None)
).order_by(_r.seq.desc()).limit(MOST_COUNTED).subquery("r")  # fmt: skip
_grouped = select(_last.c.launch_id, func.count().label("own")).group_by(_last.c.launch_id)
_own = _grouped.subquery("m")
_LAUNCHES = (
    select(*queries.columns(LaunchRow, launch_table), workers.c.name, _own.c.own)
    .join_from(_own, launch_table, _l.id == _own.c.launch_id)
    .join(workers, workers.c.incarnation == _l.incarnation, isouter=True)
    .order_by(_l.started_at.desc())
    .limit(bindparam("limit"))
)


def launches(tx: Tx, tenant: str, job: UUID, limit: int) -> Sequence[JobLaunch]:
    """Lists the latest launches that the last MOST_COUNTED items of a job ended in."""
    return queries.many(tx, JobLaunch, _LAUNCHES, {"tenant": tenant, "job": job, "limit": limit})


_computed = cast(func.nullif(func.sum(_l.padded_units), 0), Double)
_FIGURES = select(
    func.count(),
    func.coalesce(func.avg(_l["items"] + _l.calls), 0),
    func.coalesce(1 - func.sum(_l.units) / _computed, 0),
    func.coalesce(func.sum(_l.engine_ms), 0),
).where(_l.id.in_(select(_r.launch_id).where(_r.job_id == bindparam("job"))))


def launch_figures(tx: Tx, job: UUID) -> LaunchFigures:
    """Sums up the launches that the job's items ended in."""
    return LaunchFigures(*tx.execute(_FIGURES, {"job": job}).one())
