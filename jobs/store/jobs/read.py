"""Jobs as their tenant sees them: the object, the list, the results in order."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

from sqlalchemy import Engine as Database
from sqlalchemy import Select, TextClause, Uuid, bindparam, case, func, or_, select, text

from jobs.errors import Conflict
from jobs.states import OUTCOMES, JobClass, JobState, Outcome, Versioning
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.tables import jobs, results, slices, transfers
from jobs.store.tenancy import acting

RECENT_S = 15.0
"""Time over which items that ended are counted for the rate of a job."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job with its counts."""

    id: UUID  #: shown as `job_…`
    tenant_id: str  #: its tenant
    model: str  #: name of the model; empty until its dialect has read it
    version: str  #: version that it was accepted for
    job_class: JobClass  #: scheduling class
    priority: int  #: -100 to 100, higher first
    state: JobState  #: state of the job
    params: str  #: JSON object
    metadata: str  #: JSON object
    name: str | None  #: name that its client gave it
    labels: str | None  #: JSON object; pairs to find it by; None: none
    custom_ids: bool  #: True if any item has a custom_id
    total: int  #: number of items; 0 until they are read
    generation: int  #: 1, and one more with each retry
    created_at: datetime  #: time of its submission
    started_at: datetime | None  #: time of its first claim
    finished_at: datetime | None  #: time of its end
    expires_in_s: float | None  #: time to live, s; None: it never expires
    expires_at: datetime | None  #: time at which it expires
    error: str | None  #: JSON object; reason of its failure
    webhook_url: str | None  #: receiver of its webhook
    items_pruned: bool  #: its items are past their retention
    results_pruned: bool  #: its results are past their retention
    input_bytes: int  #: size of its items as JSON
    output_bytes: int  #: size of its results, archived ones too, once it has ended
    key_id: str  #: API key (`key_…`) of its submission; empty: none
    dialect: str  #: dialect of its items and results
    versioning: Versioning  #: whether its slices go by routes
    asked: str | None  #: JSON object; what its dialect was asked beyond a job's own fields
    source: str | None  #: JSON object; source of its items; None: the request
    target: str | None  #: JSON object; target of its results; None: none
    manifest: str | None  #: JSON object; what was written to the target, once it is
    queued_at: datetime | None  #: time at which its items were read, if later than created_at
    cancelling_at: datetime | None  #: time at which a cancel was requested
    written_at: datetime | None  #: time of its manifest
    traceparent: str | None  #: packed TraceContext of its request
    read_at: datetime  #: time of this reading, by the database's clock
    n_running: int = 0  #: items in leased slices that have no result
    n_recent: int = 0  #: items in slices that ended in the last RECENT_S
    succeeded: int = 0  #: items that succeeded
    failed: int = 0  #: items that failed
    cancelled: int = 0  #: items that were cancelled
    expired: int = 0  #: items that expired
    truncated: int = 0  #: items that succeeded with a text that was cut
    transfer_error: str | None = None  #: last error of its import or export


_COLUMNS = queries.columns(JobRow, jobs)
NEW_JOB = ", ".join(f"job.{column.name}" for column in _COLUMNS) + ", now()"
"""SQL: columns of a JobRow, read from the row `job` of a new job: nothing of it ran yet."""


def counted(query: Select[Any]) -> Select[Any]:
    """Rows of jobs with their counts, newest first.

    The counts of an open job are the sums over its slices; those of an ended one stand in its row.
    """
    j, s = query.subquery("j").c, slices.c
    done = {name: s[f"n_{name}"] for name in (*OUTCOMES, "truncated")}
    recently = func.now() - timedelta(seconds=RECENT_S)
    is_open = j.finished_at.is_(None)
    sums = (
        select(
            *(func.sum(column).label(name) for name, column in done.items()),
            func.sum(queries.unfinished(slices)).filter(s.state == "leased").label("running"),
            func.sum(s.stop - s.start).filter(s.finished_at > recently).label("recent"),
        )
        .where(s.job_id == j.id, is_open)
        .lateral("c")
    )
    its = (transfers.c.job_id == j.id) & (transfers.c.tenant_id == j.tenant_id)
    error = select(func.max(transfers.c.last_error)).where(its).scalar_subquery()
    return (
        select(
            *(j[str(column.key)] for column in _COLUMNS),
            func.now(),
            func.coalesce(sums.c.running, 0),
            func.coalesce(sums.c.recent, 0),
            *(func.coalesce(sums.c[name], j[f"n_{name}"]) for name in done),
            case((or_(j.source.is_not(None), j.target.is_not(None)), error)),
        )
        .join(sums, is_open, isouter=True)
        .order_by(j.id.desc())
    )


_IS_OWN = queries.is_own(jobs)
_ONE = counted(select(jobs).where(_IS_OWN, jobs.c.id == bindparam("id")))
_MANY = counted(select(jobs).where(jobs.c.id.in_(bindparam("ids", expanding=True))))


def get(tx: Tx, tenant: str, id: UUID) -> JobRow | None:
    """Returns a job of this tenant, or None."""
    return queries.one(tx, JobRow, _ONE, {"tenant": tenant, "id": id})


def one(tx: Tx, tenant: str, id: UUID) -> JobRow:
    """Returns a job that is there. Raises NoResultFound."""
    return JobRow(*tx.execute(_ONE, {"tenant": tenant, "id": id}).one())


def get_many(tx: Tx, ids: Collection[UUID]) -> list[JobRow]:
    """Returns those of these jobs that are there, of any tenant that the transaction sees."""
    return queries.many(tx, JobRow, _MANY, {"ids": list(ids)})


def running(tx: Tx, tenant: str, limit: int) -> list[JobRow]:
    """Returns the newest jobs that have leased slices. tenant: one, or EVERYBODY."""
    leased = select(slices.c.job_id).where(slices.c.state == "leased")
    latest = leased.order_by(slices.c.lease_until.desc()).limit(500)
    query = select(jobs).where(queries.is_own_or_all(jobs, tenant), jobs.c.id.in_(latest))
    return queries.many(tx, JobRow, counted(queries.page(query, jobs.c.id, None, limit)))


def open_states(tx: Tx, tenant: str) -> dict[str, int]:
    """Counts a tenant's open jobs by state."""
    query = select(jobs.c.state, func.count()).where(_IS_OWN, jobs.c.finished_at.is_(None))
    return queries.pairs(tx, query.group_by(jobs.c.state), {"tenant": tenant})


def owner(tx: Tx, id: UUID) -> str | None:
    """Returns the tenant of a job, in a transaction that sees all of them."""
    found: str | None = tx.scalar(select(jobs.c.tenant_id).where(jobs.c.id == id))
    return found


@dataclass(frozen=True, slots=True)
class Span:
    """Results that a reader gets: those with after < seq <= until."""

    after: int  #: seq before the first one
    until: int  #: seq of the last one
    complete: bool  #: True if nothing comes after them, now or later


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result, with what its dialect needs of its item."""

    seq: int  #: place of the item in its job, from 0
    custom_id: str | None  #: id that its client gave it
    reply: str | None  #: JSON; wording of the answer, where it isn't the same for all of the job
    outcome: Outcome  #: how the item ended
    output: str | None  #: JSON, a reference to the blob store, or a vector
    error: str | None  #: JSON object
    attempts: int  #: attempts that it took
    units: int  #: its size
    version: str | None  #: version of the model, where the job's slices go by routes
    input_tokens: int | None  #: billed tokens of its prompt; None: none were counted
    cached_tokens: int | None  #: of those, cached ones
    output_tokens: int | None  #: billed tokens that were generated
    truncated: int | None  #: tokens of its text that were cut away; None: none


_s, _job = slices.c, bindparam("job", type_=Uuid)
# The first slice that is not done, by its index: no result before it is missing.
_OPEN_SLICE = (
    select(_s.start, _s.stop)
    .where(_s.job_id == _job, queries.is_own(slices), text("state <> 'done'"))
    .where(_s.stop > bindparam("after") + 1)
    .order_by(_s.start)
    .limit(1)
)
# The first seq without a result in that slice: one look at the results' key a seq. Written out for
# OFFSET 0, which keeps the planner from a join: it would scan all results of a large job.
_FIRST_GAP = text("""
    SELECT min(g.seq) FROM generate_series(:since, :stop - 1) AS g (seq)
    WHERE NOT EXISTS (SELECT 1 FROM results
                      WHERE job_id = :job AND tenant_id = :tenant AND results.seq = g.seq
                      OFFSET 0)
""")
_r = results.c
# Seqs of the results of a page, counted off by the results' key.
_SEQS = select(_r.seq).where(
    _r.job_id == _job, queries.is_own(results),
    _r.seq > bindparam("after"), _r.seq <= bindparam("until"),
).order_by(_r.seq)  # fmt: skip


def span(
    tx: Tx,
    tenant: str,
    job: UUID,
    total: int,
    *,
    after: int,
    gaps: bool,
    outcome: str | None,
    limit: int | None,
) -> Span:
    """Returns what a reader gets now: results up to the first gap, or with `gaps` all there are.

    outcome: of this one alone; limit: the most results.
    """
    until, complete = _reach(tx, tenant, job, total, min(after, total - 1))
    if not gaps and not complete and until <= after:
        return Span(after, after, False)
    until = max(after, total - 1 if gaps else until)
    if limit is None and (complete or not gaps):
        return Span(after, until, complete)

    seqs = _SEQS.where(queries.equal(results, outcome=outcome))

    def last(after: int, limit: int) -> int | None:
        values = {"tenant": tenant, "job": job, "after": after, "until": until}
        page = seqs.limit(limit).subquery()
        found: int | None = tx.scalars(select(func.max(page.c.seq)), values).one()
        return found

    found = last(after, limit or total)
    if found is None:
        return Span(after, until if complete else after, complete)
    return Span(after, found, complete and last(found, 1) is None)


def _reach(tx: Tx, tenant: str, job: UUID, total: int, after: int) -> tuple[int, bool]:
    """Returns the last seq before the first gap, and True if there is no gap at all."""
    its = {"tenant": tenant, "job": job}
    open_slice = tx.execute(_OPEN_SLICE, its | {"after": after}).one_or_none()
    if open_slice is None:
        return total - 1, True
    since = max(open_slice.start, after + 1)
    gap = tx.scalars(_FIRST_GAP, its | {"since": since, "stop": open_slice.stop}).one()
    return (open_slice.stop if gap is None else gap) - 1, False


TRACEBACK, TRACEBACK_OF = "traceback", "traceback_of"
"""Last key of an item's error: frames of the model's code, or the seq of an item with the same
ones."""

# An item alone shows them, not each line of a result. In a JSON text a quote would be escaped, so
# that what begins like the key is the key.
PLAIN_ERROR = f"""CASE WHEN strpos(r.error, ',"{TRACEBACK}') > 0
                 THEN split_part(r.error, ',"{TRACEBACK}', 1) || '}}' ELSE r.error END"""
"""SQL: the error of a result `r`, without its traceback."""

# PostgreSQL writes the lines: a chunk of them arrives as one value, and Python only passes it on.
# Just after a job was written the planner knows nothing of its rows, expects one, and would compare
# all items or slices with each result: so the range is bounded on both sides, and OFFSET 0 makes it
# look into the key of one table for each row of the other. Each || copies what stands before it.
_LINES = """
    SELECT string_agg(
        ('{{"seq":' || r.seq
         || ',"custom_id":' || {custom_id}
         || ',"outcome":"' || r.outcome || '","output":')
        || coalesce({output}, 'null')
        || (',"error":' || coalesce({error}, 'null')
            || ',"usage":{{"' || :unit || '":' || r.units
            || coalesce(',"truncated":' || r.truncated, '')
            || '}},"attempts":' || r.attempts {version} || '}}'), E'\n' ORDER BY r.seq) AS lines,
        count(*) AS rows
    FROM {results} {items}
    WHERE true {where}
"""
_RANGE = "job_id = :job AND tenant_id = :tenant AND seq > :after AND seq <= :until"
_RESULTS = f"(SELECT * FROM results WHERE {_RANGE}) AS r"
_RESULTS_OF_SLICES = f"""
    (SELECT {queries.VERSION_OF_SLICE} AS version, s.start, s.stop FROM slices s
     WHERE s.job_id = :job AND s.start <= :until AND s.stop > :after + 1) AS s
    JOIN LATERAL (SELECT * FROM results
                  WHERE {_RANGE} AND seq >= s.start AND seq < s.stop OFFSET 0) AS r ON true"""
_ITEMS = """LEFT JOIN LATERAL (SELECT custom_id, reply FROM items
                               WHERE job_id = :job AND seq = r.seq OFFSET 0) AS i ON true"""
_WHERE = "AND r.outcome = CAST(:outcome AS outcome)"


def _lines(custom_ids: bool, one_outcome: bool, routed: bool) -> TextClause:
    return text(
        _LINES.format(
            custom_id="coalesce(to_json(i.custom_id)::text, 'null')" if custom_ids else "'null'",
            output=queries.OUTPUT,
            error=PLAIN_ERROR,
            results=_RESULTS_OF_SLICES if routed else _RESULTS,
            items=_ITEMS if custom_ids else "",
            where=_WHERE if one_outcome else "",
            version="""|| ',"version":' || to_json(s.version)::text""" if routed else "",
        )
    )


LINE_QUERIES = {kind: _lines(*kind) for kind in product((False, True), repeat=3)}
_FIRST_ROWS, _MOST_ROWS = 100, 2000  # of a chunk, before its size is known, and ever
_CHUNK_BYTES = 1 << 20


def result_lines(
    database: Database, job: JobRow, span: Span, unit: str, outcome: str | None
) -> Iterator[bytes]:
    """Yields NDJSON of the results in `span`, in seq order, in chunks of about a megabyte.

    unit: name of the units. Each chunk is read in a transaction of its own: a reader that stalls
    holds no connection. A custom_id is part of the item: once items are pruned, it is null. Raises
    Conflict where `retry` started another generation meanwhile, or the results are gone.
    """
    custom_ids = job.custom_ids and not job.items_pruned
    query = LINE_QUERIES[custom_ids, outcome is not None, job.versioning == "routed"]
    values = {"unit": unit, "outcome": outcome}
    after, rows = span.after, _FIRST_ROWS
    while after < span.until:
        until = min(after + rows, span.until)
        [found] = _read(database, job, query, values | {"after": after, "until": until})
        after = until
        if found.lines is not None:
            chunk = found.lines.encode() + b"\n"
            yield chunk
            rows = max(1, min(_MOST_ROWS, found.rows * _CHUNK_BYTES // len(chunk)))
        else:  # a stretch without such results
            rows = min(_MOST_ROWS, 4 * rows)


_ROWS = """
    SELECT r.seq, i.custom_id, i.reply, r.outcome, {output} AS output, {error} AS error,
           r.attempts, r.units, {version},
           r.input_tokens, r.cached_tokens, r.output_tokens, r.truncated
    FROM {results} {items}
    WHERE true {where}
    ORDER BY r.seq
"""


def _rows(one_outcome: bool, routed: bool) -> TextClause:
    return text(
        _ROWS.format(
            output=queries.OUTPUT,
            error=PLAIN_ERROR,
            version="s.version" if routed else "NULL",
            results=_RESULTS_OF_SLICES if routed else _RESULTS,
            items=_ITEMS,
            where=_WHERE if one_outcome else "",
        )
    )


ROW_QUERIES = {kind: _rows(*kind) for kind in product((False, True), repeat=2)}


def result_rows(
    database: Database, job: JobRow, span: Span | None = None, outcome: str | None = None
) -> Iterator[ResultRow]:
    """Yields the results in `span` in seq order, with references in place of long outputs; None:
    all of an ended job.

    Reads chunks and raises Conflict as `result_lines` does.
    """
    query = ROW_QUERIES[outcome is not None, job.versioning == "routed"]
    after, last = (span.after, span.until) if span else (-1, job.total - 1)
    rows, values = _FIRST_ROWS, {"outcome": outcome}
    while after < last:
        until = min(after + rows, last)
        read = _read(database, job, query, values | {"after": after, "until": until})
        found = [ResultRow(*row) for row in read]
        yield from found
        after = until
        if found:
            size = sum(len(row.output or "") + len(row.reply or "") for row in found)
            rows = max(1, min(_MOST_ROWS, len(found) * _CHUNK_BYTES // (size + 1)))
        else:  # a stretch without such results
            rows = min(_MOST_ROWS, 4 * rows)


_GENERATION = select(jobs.c.generation).where(jobs.c.id == _job, ~jobs.c.results_pruned)


def _read(
    database: Database, job: JobRow, query: TextClause, values: dict[str, Any]
) -> Sequence[Any]:
    its: dict[str, Any] = {"job": job.id, "tenant": job.tenant_id}
    with acting(database, job.tenant_id) as tx:
        found = tx.execute(query, its | values).all()
        generation = tx.scalar(_GENERATION, its)
    if generation != job.generation:
        raise Conflict("the job was retried, deleted or pruned while its results were read")
    return found
