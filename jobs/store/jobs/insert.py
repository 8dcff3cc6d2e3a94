"""A job on its way in: its row, its items by COPY, its slices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.identity import Limit
from jobs.models.model import Model
from jobs.states import JobClass
from jobs.store import partitions
from jobs.store.billing import quota
from jobs.store.db import WORK_CHANNEL, Tx, cursor, disable_statement_timeout

DUE_AFTER_S: Mapping[JobClass, float] = {"interactive": 0.0, "standard": 30.0, "bulk": 600.0}
"""After its submission a job's first slice is due. Of one tenant and priority what is due first
goes first: so an interactive job passes those that came up to half a minute before it, and nothing
waits for ever."""

STRIDE_S = 1.0
"""Each slice of a job is due so much later than the one before: a short job passes the rest of a
long one. About the device time of a slice."""

_URGENT_SHARE = 0.5  # of the time until its job expires: a slice is due by then
_COPY_CHUNK = 1 << 18
_MANY_ITEMS = 10_000  # their COPY may take longer than a statement may


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it is stored. params, metadata, asked, target: JSON texts; expires_in_s:
    None for never; input_bytes: of all items, as JSON; limits, key: its caller's; traceparent: the
    packed TraceContext of the request that it came by."""

    id: UUID
    tenant: str
    model: Model
    job_class: JobClass
    priority: int
    params: str
    metadata: str
    custom_ids: bool
    expires_in_s: float | None
    webhook_url: str | None
    input_bytes: int = 0
    limits: tuple[Limit, ...] = ()
    key: str = ""
    dialect: str = "native"
    asked: str | None = None
    target: str | None = None
    traceparent: str | None = None


_CUT = """
        INSERT INTO slices (job_id, tenant_id, start, stop, inputs, model, version, priority,
                            due_at)
        SELECT :id, :tenant, start, stop, coalesce(inputs, 1), :model, :version, :priority,
               now() + make_interval(secs => least(:patience_s + (nth - 1) * :stride_s,
                                                   :urgent_s))
        FROM unnest(CAST(:starts AS int[]), CAST(:stops AS int[]), CAST(:inputs AS int[]))
             WITH ORDINALITY AS s (start, stop, inputs, nth)
"""

NEW_JOB_COLUMNS = """now() AS read_at, 0 AS n_running, 0 AS n_recent, 0 AS succeeded, 0 AS failed,
           0 AS cancelled, 0 AS expired, CAST(NULL AS text) AS transfer_error"""
"""What `reading.one` has beside the job's row, of one that is new."""

# One statement for all but the items: each round trip costs a small job as much as its work.
_INSERT_JOB = text(f"""
    WITH job AS (
        INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                          custom_ids, total, expires_in_s, expires_at, webhook_url, input_bytes,
                          key_id, dialect, asked, target, traceparent)
        VALUES (:id, :tenant, :model, :version, :class, :priority, 'queued', :params, :metadata,
                :custom_ids, :total, :expires_in_s, now() + make_interval(secs => :expires_in_s),
                :webhook_url, :input_bytes, :key, :dialect, :asked, :target, :traceparent)
        RETURNING *
    ), cut AS ({_CUT})
    SELECT job.*, {NEW_JOB_COLUMNS}, pg_notify(:channel, '')
    FROM job
""")


def insert_job(
    tx: Tx, job: NewJob, rows: IO[bytes], bounds: Sequence[int], inputs: Sequence[int] = ()
) -> RowMapping:
    """Stores a job, tells keepers at commit, and returns its row as `reading.one` does. rows: COPY
    text of `items`; bounds: each slice's start, then the total; inputs: how many an item of each
    slice stands for, where that may be several. Raises QuotaExceeded."""
    _copy_items(tx, job, rows, bounds)
    return tx.execute(_INSERT_JOB, _values(job, bounds, inputs)).mappings().one()


_QUEUE_JOB = text(f"""
    WITH job AS (
        UPDATE jobs
        SET state = 'queued', model = :model, version = :version, custom_ids = :custom_ids,
            total = :total, input_bytes = :input_bytes, queued_at = now()
        WHERE id = :id
    ), cut AS ({_CUT})
    SELECT pg_notify(:channel, '')
""")


def queue_job(
    tx: Tx, job: NewJob, rows: IO[bytes], bounds: Sequence[int], inputs: Sequence[int] = ()
) -> None:
    """The same for a job whose row is there, validating; the caller has locked it."""
    _copy_items(tx, job, rows, bounds)
    tx.execute(_QUEUE_JOB, _values(job, bounds, inputs))


def _copy_items(tx: Tx, job: NewJob, rows: IO[bytes], bounds: Sequence[int]) -> None:
    asked = job.tenant, job.limits, job.model.name, bounds[-1], job.input_bytes
    if bounds[-1] > _MANY_ITEMS:
        disable_statement_timeout(tx)
        quota.check(tx, *asked, lock=False)
    # COPY refuses a table with row-level security: its partitions have none, and nobody else
    # may write to them.
    leaf = partitions.leaf(tx, "items", job.id)
    with cursor(tx).copy(
        f"COPY {leaf} (job_id, tenant_id, seq, custom_id, params, reply, input) FROM STDIN"
    ) as copy:
        while chunk := rows.read(_COPY_CHUNK):
            copy.write(chunk)
    quota.check(tx, *asked)  # after COPY: nobody waits for it


def _values(job: NewJob, bounds: Sequence[int], inputs: Sequence[int]) -> dict[str, Any]:
    return {
        "id": job.id,
        "tenant": job.tenant,
        "model": job.model.name,
        "version": job.model.version,
        "class": job.job_class,
        "priority": job.priority,
        "params": job.params,
        "metadata": job.metadata,
        "custom_ids": job.custom_ids,
        "total": bounds[-1],
        "expires_in_s": job.expires_in_s,
        "patience_s": DUE_AFTER_S[job.job_class],
        "stride_s": STRIDE_S,
        # Not in SQL: PostgreSQL refuses a product that is too small to be told from 0.
        "urgent_s": job.expires_in_s and job.expires_in_s * _URGENT_SHARE,
        "webhook_url": job.webhook_url,
        "input_bytes": job.input_bytes,
        "key": job.key,
        "dialect": job.dialect,
        "asked": job.asked,
        "target": job.target,
        "traceparent": job.traceparent,
        "starts": list(bounds[:-1]),
        "stops": list(bounds[1:]),
        "inputs": list(inputs),
        "channel": WORK_CHANNEL,
    }
