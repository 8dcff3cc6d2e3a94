"""Insertion of jobs: their rows, their items by COPY, their slices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from itertools import repeat
from math import inf
from typing import IO, Any
from uuid import UUID

import orjson

from jobs.identity import Limit
from jobs.models.model import Model
from jobs.states import JobClass, Versioning
from jobs.store import partitions
from jobs.store.billing import quota
from jobs.store.db import Tx, cursor, disable_statement_timeout, notify_work
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
    name: str | None = None  #: name that its client gave it
    labels: str | None = None  #: JSON object; pairs to find it by; None: none
    expires_in_s: float | None = 86_400.0  #: time to live, s; None: it never expires
    webhook_url: str | None = None  #: receiver of its webhook
    key: str = ""  #: API key (`key_…`) of its caller
    dialect: str = "native"  #: dialect of its items and results
    versioning: Versioning = "pinned"  #: whether its slices go by routes
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
        """Size of the texts that are stored in the job's own row."""
        json = self.params, self.metadata, self.labels, self.asked, self.source, self.target
        own = self.name, *json
        return sum([len(text.encode()) for text in own if text and text != "{}"])


_SUBMITTED = [field.name for field in fields(SubmittedJob)]
_UNREAD = {"state": "validating", "custom_ids": False, "total": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob(SubmittedJob):
    """A job with its items."""

    model: Model  #: version of a model
    custom_ids: bool  #: True if any item has a custom_id
    input_bytes: int = 0  #: size of all items, with their names and parameters
    limits: tuple[Limit, ...] = ()  #: limits of its caller


# Columns of a new job with their types, by the parameters of SubmittedJob.as_values.
_COLUMNS = {
    "id": ("id", "uuid"),
    "tenant": ("tenant_id", "text"),
    "model": ("model", "text"),
    "version": ("version", "text"),
    "job_class": ("class", "text"),
    "priority": ("priority", "int"),
    "state": ("state", "text"),
    "params": ("params", "text"),
    "metadata": ("metadata", "text"),
    "name": ("name", "text"),
    "labels": ("labels", "text"),
    "custom_ids": ("custom_ids", "bool"),
    "total": ("total", "int"),
    "expires_in_s": ("expires_in_s", "float8"),
    "webhook_url": ("webhook_url", "text"),
    "input_bytes": ("input_bytes", "bigint"),
    "key": ("key_id", "text"),
    "dialect": ("dialect", "text"),
    "versioning": ("versioning", "text"),
    "asked": ("asked", "text"),
    "source": ("source", "text"),
    "target": ("target", "text"),
    "traceparent": ("traceparent", "text"),
}
_INSERT = f"""INSERT INTO jobs ({", ".join(name for name, _ in _COLUMNS.values())}, expires_at)"""
_EXPIRES = "now() + make_interval(secs => {}expires_in_s)"

INSERT_JOB = f"""
        {_INSERT}
        VALUES ({", ".join(f":{name}" for name in _COLUMNS)}, {_EXPIRES.format(":")})
        RETURNING *
"""
"""SQL: inserts a job, by the parameters of `SubmittedJob.as_values`."""

LABEL_JOBS = """
        INSERT INTO job_labels (job_id, tenant_id, key, value)
        SELECT job.id, job.tenant_id, pair.key, pair.value
        FROM job CROSS JOIN json_each_text(job.labels::json) AS pair
"""
"""SQL: inserts the labels of the rows `job`."""

# The slices of the rows `job`. Their parameter is a JSON array: PostgreSQL reads it in less time
# than the driver takes to write as many arrays.
_CUT = """
        INSERT INTO slices (job_id, tenant_id, start, stop, inputs, model, version, priority,
                            due_at)
        SELECT job.id, job.tenant_id, s.start, s.stop, s.inputs, job.model,
               coalesce(s.version, job.version), job.priority,
               now() + make_interval(secs => s.due_in_s)
        FROM json_to_recordset(%b::json)
             AS s (job uuid, start int, stop int, inputs int, due_in_s float8, version text)
        JOIN job ON job.id = s.job
"""


def _insert_jobs(labels: str) -> str:
    """One statement for all but the items: each round trip costs a small job as much as its work.

    labels: a further part, which inserts them.
    """
    return f"""
        WITH job AS (
            {_INSERT}
            SELECT {", ".join(_COLUMNS)}, {_EXPIRES.format("")}
            FROM json_to_recordset(%b::json)
                 AS n ({", ".join(f"{name} {kind}" for name, (_, kind) in _COLUMNS.items())})
            RETURNING *
        ), cut AS ({_CUT}) {labels}
        SELECT {NEW_JOB} FROM job
    """


_INSERT_JOBS = _insert_jobs("")
_INSERT_LABELLED_JOBS = _insert_jobs(f", labelled AS ({LABEL_JOBS})")


@dataclass(frozen=True, slots=True)
class JobItems:
    """Items of a new job, cut into slices."""

    rows: IO[bytes]  #: COPY text of `items`
    bounds: Sequence[int]  #: each slice's start, then the total
    inputs: Sequence[int] = ()  #: inputs that an item of each slice has; empty: 1
    versions: Sequence[str] = ()  #: version of each slice; empty: the job's


def insert_job(tx: Tx, job: NewJob, items: JobItems) -> JobRow:
    """Stores a job and returns its row. Raises QuotaExceeded.

    The caller notifies keepers (`jobs.store.notifier`).
    """
    more_bytes = job.input_bytes + job.own_bytes
    copy_items(tx, [(job, items)], more_bytes)
    quota.check(tx, job.tenant, job.limits, job.model.name, items.bounds[-1], more_bytes)
    return insert_jobs(tx, [(job, items)])[0]


def insert_jobs(tx: Tx, jobs: Sequence[tuple[NewJob, JobItems]]) -> list[JobRow]:
    """Stores jobs of one tenant whose items are stored; returns their rows in this order."""
    values = _json(_values(job, items) for job, items in jobs)
    slices = _json(each for job, items in jobs for each in _slices(job, items))
    is_labelled = any(job.labels for job, _ in jobs)
    statement = _INSERT_LABELLED_JOBS if is_labelled else _INSERT_JOBS
    found = {row[0]: row for row in cursor(tx).execute(statement, [values, slices])}
    return [JobRow(*found[job.id]) for job, _ in jobs]


# Cuts the slices in the round trip that queues the job.
_QUEUE_JOB = f"""
    WITH job AS (
        UPDATE jobs
        SET state = 'queued', model = %b, version = %b, custom_ids = %b, total = %b,
            input_bytes = jobs.input_bytes + %b, queued_at = now()
        WHERE id = %b
        RETURNING *
    )
    {_CUT}
"""


def queue_job(tx: Tx, job: NewJob, items: JobItems) -> None:
    """Stores the items of a `validating` job that the caller has locked, and notifies keepers at
    commit. Raises QuotaExceeded."""
    copy_items(tx, [(job, items)], job.input_bytes)
    quota.check(tx, job.tenant, job.limits, job.model.name, items.bounds[-1], job.input_bytes)
    model = job.model.name, job.model.version
    values = [*model, job.custom_ids, items.bounds[-1], job.input_bytes, job.id]
    cursor(tx).execute(_QUEUE_JOB, [*values, _json(_slices(job, items))])
    notify_work(tx)


def copy_items(tx: Tx, jobs: Sequence[tuple[NewJob, JobItems]], more_bytes: int = 0) -> None:
    """Stores the items of jobs of one tenant and one week. more_bytes: bytes of a large job that
    are not stored yet. Raises QuotaExceeded where a large job has no room."""
    first, items = jobs[0]
    if items.bounds[-1] > _MANY_ITEMS:
        disable_statement_timeout(tx)
        asked = first.tenant, first.limits, first.model.name, items.bounds[-1], more_bytes
        quota.check(tx, *asked, lock=False)
    # COPY refuses a table with row-level security: its partitions have none, and nobody else
    # may write to them.
    leaf = partitions.leaf(tx, "items", first.id)
    with cursor(tx).copy(
        f"COPY {leaf} (job_id, tenant_id, seq, custom_id, params, reply, input) FROM STDIN"
    ) as copy:
        for _, each in jobs:
            while chunk := each.rows.read(_COPY_CHUNK):
                copy.write(chunk)


def _values(job: NewJob, items: JobItems) -> dict[str, Any]:
    return job.as_values() | {
        "state": "queued",
        "custom_ids": job.custom_ids,
        "total": items.bounds[-1],
        "input_bytes": job.input_bytes + job.own_bytes,
    }


def _slices(job: NewJob, items: JobItems) -> Iterator[dict[str, Any]]:
    """A job's slices: each due a stride later than the one before, and all of them by the middle of
    the job's time to live."""
    urgent_s = inf if job.expires_in_s is None else job.expires_in_s * _URGENT_SHARE
    inputs = items.inputs or repeat(1)
    ends = zip(items.bounds, items.bounds[1:], inputs, strict=False)
    for n, (start, stop, each) in enumerate(ends):
        due_in_s = min(DUE_AFTER_S[job.job_class] + n * STRIDE_S, urgent_s)
        its = {"job": job.id, "start": start, "stop": stop, "inputs": each, "due_in_s": due_in_s}
        yield its | {"version": items.versions[n]} if items.versions else its


def _json(rows: Iterable[dict[str, Any]]) -> str:
    return orjson.dumps(list(rows)).decode()
