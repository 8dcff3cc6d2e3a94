"""Jobs as their tenant sees them: the object, the list, the results in order, one item."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Engine as Database
from sqlalchemy import RowMapping, TextClause, text

from jobs.errors import Conflict
from jobs.store.db import Tx
from jobs.store.tenancy import EVERYBODY, acting

# Counts of an open job are the sums over its slices; those of a finished one stand on its row.
_JOB = """
    SELECT j.*, now() AS read_at,
           coalesce(c.running, 0) AS n_running, coalesce(c.recent, 0) AS n_recent,
           coalesce(c.succeeded, j.n_succeeded) AS succeeded,
           coalesce(c.failed, j.n_failed) AS failed,
           coalesce(c.cancelled, j.n_cancelled) AS cancelled,
           coalesce(c.expired, j.n_expired) AS expired,
           CASE WHEN j.source IS NOT NULL OR j.target IS NOT NULL THEN
               (SELECT max(last_error) FROM transfers t
                WHERE t.job_id = j.id AND t.tenant_id = j.tenant_id) END AS transfer_error
    FROM ({jobs}) AS j
    LEFT JOIN LATERAL (
        SELECT sum(n_succeeded) AS succeeded, sum(n_failed) AS failed,
               sum(n_cancelled) AS cancelled, sum(n_expired) AS expired,
               sum(stop - start - n_succeeded - n_failed - n_cancelled - n_expired)
                   FILTER (WHERE state = 'leased') AS running,
               sum(stop - start) FILTER (WHERE finished_at > now() - interval '15 s') AS recent
        FROM slices WHERE slices.job_id = j.id AND j.finished_at IS NULL
    ) AS c ON j.finished_at IS NULL
    ORDER BY j.id DESC
"""
RECENT_S = 15.0


def counted(jobs: str) -> TextClause:
    """The rows that a query of jobs gives, with their counts, the newest first."""
    return text(_JOB.format(jobs=jobs))


_ONE = counted("SELECT * FROM jobs WHERE tenant_id = :tenant AND id = :id")
_WATCHED = counted("SELECT * FROM jobs WHERE id = ANY(:ids)")
_PAGE_JOBS = """SELECT * FROM jobs
    WHERE {whose} (CAST(:after AS uuid) IS NULL OR id {beyond} :after)
      AND (CAST(:state AS text) IS NULL OR state = :state)
      AND (CAST(:model AS text) IS NULL OR model = :model)
      AND (CAST(:version AS text) IS NULL OR version = :version)
      AND (CAST(:dialect AS text) IS NULL OR dialect = :dialect)
    ORDER BY id {order} LIMIT :limit"""
_ITS_OWN = "tenant_id = :tenant AND"


def _page(whose: str = _ITS_OWN, beyond: str = "<", order: str = "DESC") -> TextClause:
    return counted(_PAGE_JOBS.format(whose=whose, beyond=beyond, order=order))


_PAGE, _PAGE_OF_ALL, _PAGE_NEWER = _page(), _page(whose=""), _page(beyond=">", order="ASC")
_RUNNING = """SELECT * FROM jobs
    WHERE (:everybodys OR tenant_id = :tenant) AND id IN (
        SELECT job_id FROM slices WHERE state = 'leased' ORDER BY lease_until DESC LIMIT 500)
    ORDER BY id DESC LIMIT :limit"""
_RUNNING_NOW = text(_JOB.format(jobs=_RUNNING))
_OPEN = text("""
    SELECT state, count(*) AS jobs FROM jobs
    WHERE finished_at IS NULL AND tenant_id = :tenant GROUP BY 1
""")
_OWNER = text("SELECT tenant_id FROM jobs WHERE id = :id")


def get(tx: Tx, tenant: str, id: UUID) -> RowMapping | None:
    return tx.execute(_ONE, {"tenant": tenant, "id": id}).mappings().one_or_none()


def running(tx: Tx, tenant: str, limit: int) -> Sequence[RowMapping]:
    """Jobs of which something is in a worker's hands, the newest first; tenant: EVERYBODY: of
    all."""
    asked = {"tenant": tenant, "everybodys": tenant == EVERYBODY, "limit": limit}
    return tx.execute(_RUNNING_NOW, asked).mappings().all()


def open_states(tx: Tx, tenant: str) -> dict[str, int]:
    """How many open jobs a tenant has, by state."""
    return {row.state: row.jobs for row in tx.execute(_OPEN, {"tenant": tenant})}


def owner(tx: Tx, id: UUID) -> str | None:
    """Whose job that is, for who may see everybody's."""
    return tx.scalars(_OWNER, {"id": id}).one_or_none()


def get_many(tx: Tx, ids: Collection[UUID]) -> list[RowMapping]:
    """Those of the jobs that are there, whoever's they are."""
    return list(tx.execute(_WATCHED, {"ids": list(ids)}).mappings())


def one(tx: Tx, tenant: str, id: UUID) -> RowMapping:
    """A job that is there."""
    return tx.execute(_ONE, {"tenant": tenant, "id": id}).mappings().one()


def page(
    tx: Tx,
    tenant: str,
    *,
    state: str | None,
    model: str | None,
    version: str | None,
    after: UUID | None,
    limit: int,
    dialect: str | None = None,
    newer: bool = False,
) -> list[RowMapping]:
    """Newest first; `after` is the id of the last job of the page before or, of one tenant, where
    `newer` ones are wanted, the first of the page after. tenant: one, or EVERYBODY."""
    values = {
        "tenant": tenant,
        "state": state,
        "model": model,
        "version": version,
        "after": after,
        "limit": limit,
        "dialect": dialect,
    }
    page = _PAGE_OF_ALL if tenant == EVERYBODY else _PAGE_NEWER if newer else _PAGE
    return list(tx.execute(page, values).mappings())


@dataclass(frozen=True, slots=True)
class Span:
    """Which results a reader gets: those with after < seq <= until. complete: nothing comes after
    them, now or later."""

    after: int
    until: int
    complete: bool


_OPEN_SLICE = text("""
    SELECT start, stop FROM slices
    WHERE job_id = :job AND tenant_id = :tenant AND state <> 'done' AND stop > :after + 1
    ORDER BY start LIMIT 1
""")
_FIRST_GAP = text("""
    SELECT min(g.seq) FROM generate_series(:since, :stop - 1) AS g (seq)
    WHERE NOT EXISTS (SELECT 1 FROM results
                      WHERE job_id = :job AND tenant_id = :tenant AND results.seq = g.seq
                      OFFSET 0)
""")
_LAST = text("""
    SELECT max(seq) FROM (
        SELECT seq FROM results
        WHERE job_id = :job AND tenant_id = :tenant AND seq > :after AND seq <= :until
          AND (CAST(:outcome AS text) IS NULL OR outcome = CAST(:outcome AS outcome))
        ORDER BY seq LIMIT :limit) AS r
""")


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
    """What a reader gets now: up to the first gap, or with `gaps` all there is; of one outcome,
    if that is asked; `limit` results at most."""
    until, complete = _reach(tx, tenant, job, total, min(after, total - 1))
    if not gaps and not complete and until <= after:
        return Span(after, after, False)
    until = max(after, total - 1 if gaps else until)
    if limit is None and (complete or not gaps):
        return Span(after, until, complete)

    def last(after: int, limit: int) -> int | None:
        values: dict[str, Any] = {"tenant": tenant, "job": job, "outcome": outcome}
        values |= {"after": after, "until": until, "limit": limit}
        found: int | None = tx.scalars(_LAST, values).one()
        return found

    found = last(after, limit or total)
    if found is None:
        return Span(after, until if complete else after, complete)
    return Span(after, found, complete and last(found, 1) is None)


def _reach(tx: Tx, tenant: str, job: UUID, total: int, after: int) -> tuple[int, bool]:
    """(the last seq before the first gap, whether there is no gap at all)."""
    its = {"tenant": tenant, "job": job}
    open_slice = tx.execute(_OPEN_SLICE, its | {"after": after}).one_or_none()
    if open_slice is None:
        return total - 1, True
    since = max(open_slice.start, after + 1)
    gap = tx.scalars(_FIRST_GAP, its | {"since": since, "stop": open_slice.stop}).one()
    return (open_slice.stop if gap is None else gap) - 1, False


# PostgreSQL writes the lines: a chunk of them arrives as one value, and Python only passes it on.
_LINES = """
    SELECT string_agg(
        '{{"seq":' || r.seq
        || ',"custom_id":' || {custom_id}
        || ',"outcome":"' || r.outcome
        || '","output":' || coalesce(r.output, 'null')
        || ',"error":' || coalesce(r.error, 'null')
        || ',"usage":{{"' || :unit || '":' || r.units
        || '}},"attempts":' || r.attempts || '}}', E'\n' ORDER BY r.seq) AS lines,
        count(*) AS rows
    FROM results r {join}
    WHERE r.job_id = :job AND r.tenant_id = :tenant AND r.seq > :after AND r.seq <= :until {where}
"""
_JOIN = "JOIN items i ON i.job_id = :job AND i.seq = r.seq"
_WHERE = "AND outcome = CAST(:outcome AS outcome)"


def _lines(custom_ids: bool, one_outcome: bool) -> TextClause:
    return text(
        _LINES.format(
            custom_id="coalesce(to_json(i.custom_id)::text, 'null')" if custom_ids else "'null'",
            join=_JOIN if custom_ids else "",
            where=_WHERE if one_outcome else "",
        )
    )


_LINE_QUERIES = {
    (custom_ids, one_outcome): _lines(custom_ids, one_outcome)
    for custom_ids in (False, True)
    for one_outcome in (False, True)
}
_FIRST_ROWS, _MOST_ROWS = 100, 2000  # of a chunk, before its size is known, and ever
_CHUNK_BYTES = 1 << 20


def result_lines(
    database: Database, job: RowMapping, span: Span, unit: str, outcome: str | None
) -> Iterator[bytes]:
    """NDJSON of the results in `span`, in seq order, in chunks of about a megabyte. unit: what
    the usage counts.

    Each chunk is read in a transaction of its own: a reader that stalls holds no connection.
    A custom_id is part of the item: once items are pruned, it is null. Raises Conflict where
    `retry` started another generation meanwhile, or the results are gone.
    """
    custom_ids = job["custom_ids"] and not job["items_pruned"]
    query = _LINE_QUERIES[custom_ids, outcome is not None]
    values = {"job": job["id"], "tenant": job["tenant_id"], "unit": unit, "outcome": outcome}
    after, rows = span.after, _FIRST_ROWS
    while after < span.until:
        # Bounded on both sides: the planner then never looks further than this chunk.
        until = min(after + rows, span.until)
        with acting(database, job["tenant_id"]) as tx:
            found = tx.execute(query, values | {"after": after, "until": until}).one()
            generation = tx.scalar(_GENERATION, {"job": job["id"]})
        if generation != job["generation"]:
            raise Conflict("the job was retried, deleted or pruned while its results were read")
        after = until
        if found.lines is not None:
            chunk = found.lines.encode() + b"\n"
            yield chunk
            rows = max(1, min(_MOST_ROWS, found.rows * _CHUNK_BYTES // len(chunk)))
        else:  # a stretch without such results
            rows = min(_MOST_ROWS, 4 * rows)


# OFFSET 0: one look at the index for each item, whatever the statistics say.
_ROWS = text("""
    SELECT r.seq, i.custom_id, i.reply, r.outcome, r.output, r.error, r.attempts, r.units
    FROM results r
    LEFT JOIN LATERAL (SELECT custom_id, reply FROM items
                       WHERE job_id = :job AND seq = r.seq OFFSET 0) AS i ON true
    WHERE r.job_id = :job AND r.tenant_id = :tenant AND r.seq > :after AND r.seq <= :until
    ORDER BY r.seq
""")


def result_rows(database: Database, job: RowMapping) -> Iterator[RowMapping]:
    """The results of a job that has ended, in seq order, as `Dialect.written` takes them, with
    references in place of long outputs. In chunks, and with Conflict raised, as `result_lines`."""
    values = {"job": job["id"], "tenant": job["tenant_id"]}
    after, rows = -1, _FIRST_ROWS
    while after < job["total"] - 1:
        until = min(after + rows, job["total"] - 1)
        with acting(database, job["tenant_id"]) as tx:
            found = tx.execute(_ROWS, values | {"after": after, "until": until}).mappings().all()
            generation = tx.scalar(_GENERATION, {"job": job["id"]})
        if generation != job["generation"]:
            raise Conflict("the job was retried, deleted or pruned while its results were read")
        yield from found
        after = until
        size = sum(len(row["output"] or "") + len(row["reply"] or "") for row in found)
        rows = max(1, min(_MOST_ROWS, len(found) * _CHUNK_BYTES // (size + 1)))


_GENERATION = text("SELECT generation FROM jobs WHERE id = :job AND NOT results_pruned")

_ITEM = text("""
    SELECT i.seq, i.custom_id, i.input, i.params, s.state AS slice_state, s.epoch, s.lease_owner,
           s.worker, s.claimed_at, s.finished_at AS slice_finished_at, s.suspect, s.deaths,
           r.outcome, r.output, r.error, r.units, r.attempts, r.wait_ms, r.launch_id,
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


def item(tx: Tx, tenant: str, job: UUID, seq: int) -> RowMapping | None:
    return tx.execute(_ITEM, {"tenant": tenant, "job": job, "seq": seq}).mappings().one_or_none()


_LAUNCHES = text("""
    SELECT count(*) AS launches, coalesce(avg(items + calls), 0) AS mean_size,
           coalesce(1 - sum(units)::float8 / nullif(sum(padded_units), 0), 0) AS padding_share,
           coalesce(sum(engine_ms), 0) AS engine_ms
    FROM launches
    WHERE id IN (SELECT launch_id FROM results WHERE job_id = :job)
""")


def launch_figures(tx: Tx, job: UUID) -> RowMapping:
    """Of the launches that the job's items were in: their number, mean size (entries), padding
    share (0..1) and engine time (ms)."""
    return tx.execute(_LAUNCHES, {"job": job}).mappings().one()
