"""Insertion of a job: its row, its items by COPY, its slices."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import IO, Any
from uuid import UUID

from sqlalchemy import text

from jobs.identity import Limit
from jobs.models.model import Model
from jobs.states import JobClass
from jobs.store import partitions
from jobs.store.billing import quota
from jobs.store.db import WORK_CHANNEL, Tx, cursor, disable_statement_timeout
from jobs.store.jobs.read import NEW_JOB, JobRow

DUE_AFTER_S: Mapping[JobClass, float] = {"interactive": 0.0, "standard": 30.0, "bulk": 600.0}
"""Time from a job's submission until its first slice is due.

The slices of one tenant and priority run in the order of their due times: an interactive job passes
those that came up to half a minute before it, and nothing waits forever.
"""

STRIDE_S = 1.0
"""Time between the due times of a job's slices, about the device time of a slice.

A short job passes the rest of a long one.
"""

_URGENT_SHARE = 0.5  # of the time until its job expires: a slice is due by then
_COPY_CHUNK = 1 << 18
_MANY_ITEMS = 10_000  # their COPY may take longer than a statement may


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job as a client submitted it, its items aside."""

    id: UUID  #: its id
    tenant: str  #: its tenant
    _: KW_ONLY
    model: Model | None = None  #: version of a model; None: its dialect reads it from the lines
    job_class: JobClass = "standard"  #: scheduling class
    priority: int = 0  #: -100 to 100, higher first
    params: str = "{}"  #: JSON object
    metadata: str = "{}"  #: JSON object
    expires_in_s: float | None = 86_400.0  #: time to live, s; None: it never expires
    webhook_url: str | None = None  #: receiver of its webhook
    key: str = ""  #: API key (`key_…`) of its caller
    dialect: str = "native"  #: dialect of its items and results
    asked: str | None = None  #: JSON object; what its dialect was asked beyond a job's own fields
    source: str | None = None  #: JSON object; source of its items; None: the request
    target: str | None = None  #: JSON object; target of its results
    traceparent: str | None = None  #: packed TraceContext of its request

    def as_values(self) -> dict[str, Any]:
        """Returns its fields as parameters of INSERT_JOB; it has no items yet."""
        values = {name: getattr(self, name) for name in _SUBMITTED}
        model = (self.model.name, self.model.version) if self.model else ("", "")
        unread = _UNREAD | {"input_bytes": self.own_bytes}
        return values | {"model": model[0], "version": model[1]} | unread

    @property
    def own_bytes(self) -> int:
        """Size of the JSON that is stored in the job's own row."""
        own = self.params, self.metadata, self.asked, self.source, self.target
        return sum([len(json.encode()) for json in own if json and json != "{}"])


_SUBMITTED = [field.name for field in fields(SubmittedJob)]
_UNREAD = {"state": "validating", "custom_ids": False, "total": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob(SubmittedJob):
    """A job with its items."""

    model: Model  #: version of a model
    custom_ids: bool  #: True if any item has a custom_id
    input_bytes: int = 0  #: size of all items, with their names and parameters
    limits: tuple[Limit, ...] = ()  #: limits of its caller


INSERT_JOB = """
        INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                          custom_ids, total, expires_in_s, expires_at, webhook_url, input_bytes,
                          key_id, dialect, asked, source, target, traceparent)
        VALUES (:id, :tenant, :model, :version, :job_class, :priority, :state, :params, :metadata,
                :custom_ids, :total, :expires_in_s, now() + make_interval(secs => :expires_in_s),
                :webhook_url, :input_bytes, :key, :dialect, :asked, :source, :target, :traceparent)
        RETURNING *
"""
"""SQL: inserts a job, by the parameters of `SubmittedJob.as_values`."""

# A job's slices: each due a stride later than the one before, and all of them by the middle of the
# job's time to live.
_CUT = """
        INSERT INTO slices (job_id, tenant_id, start, stop, inputs, model, version, priority,
                            due_at)
        SELECT :id, :tenant, start, stop, coalesce(inputs, 1), :model, :version, :priority,
               now() + make_interval(secs => least(:patience_s + (nth - 1) * :stride_s,
                                                   :urgent_s))
        FROM unnest(CAST(:starts AS int[]), CAST(:stops AS int[]), CAST(:inputs AS int[]))
             WITH ORDINALITY AS s (start, stop, inputs, nth)
"""

# One statement for all but the items, the NOTIFY included: each round trip costs a small job as
# much as its work.
_INSERT_JOB = text(f"""
    WITH job AS ({INSERT_JOB}    ), cut AS ({_CUT})
    SELECT {NEW_JOB}, pg_notify(:channel, '') FROM job
""")


def insert_job(
    tx: Tx, job: NewJob, rows: IO[bytes], bounds: Sequence[int], inputs: Sequence[int] = ()
) -> JobRow:
    """Stores a job, notifies keepers at commit, and returns its row.

    rows: COPY text of `items`; bounds: each slice's start, then the total; inputs: number of inputs
    an item of each slice has, where that may be several. Raises QuotaExceeded.
    """
    input_bytes = job.input_bytes + job.own_bytes
    _copy_items(tx, job, rows, bounds, input_bytes)
    values = _values(job, bounds, inputs) | {"input_bytes": input_bytes}
    return JobRow(*tx.execute(_INSERT_JOB, values).one()[:-1])


# Cuts the slices and notifies keepers in the round trip that queues the job.
_QUEUE_JOB = text(f"""
    WITH job AS (
        UPDATE jobs
        SET state = 'queued', model = :model, version = :version, custom_ids = :custom_ids,
            total = :total, input_bytes = jobs.input_bytes + :input_bytes, queued_at = now()
        WHERE id = :id
    ), cut AS ({_CUT})
    SELECT pg_notify(:channel, '')
""")


def queue_job(
    tx: Tx, job: NewJob, rows: IO[bytes], bounds: Sequence[int], inputs: Sequence[int] = ()
) -> None:
    """Stores the items of a `validating` job that the caller has locked; else as `insert_job`."""
    _copy_items(tx, job, rows, bounds, job.input_bytes)
    tx.execute(_QUEUE_JOB, _values(job, bounds, inputs))


def _copy_items(
    tx: Tx, job: NewJob, rows: IO[bytes], bounds: Sequence[int], more_bytes: int
) -> None:
    """Stores the items. more_bytes: of what isn't stored yet."""
    asked = job.tenant, job.limits, job.model.name, bounds[-1], more_bytes
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
    return job.as_values() | {
        "state": "queued",
        "custom_ids": job.custom_ids,
        "total": bounds[-1],
        "input_bytes": job.input_bytes,
        "patience_s": DUE_AFTER_S[job.job_class],
        "stride_s": STRIDE_S,
        # Not in SQL: PostgreSQL refuses a product that is too small to be told from 0.
        "urgent_s": job.expires_in_s and job.expires_in_s * _URGENT_SHARE,
        "starts": list(bounds[:-1]),
        "stops": list(bounds[1:]),
        "inputs": list(inputs),
        "channel": WORK_CHANNEL,
    }
