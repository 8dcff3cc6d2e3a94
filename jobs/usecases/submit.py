"""Submission of a job: all of it is checked and spooled first, then stored in one transaction.

A job whose items lie elsewhere is stored without them; a keeper imports them
(workers/transfers/importing.py).
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Engine as Database

from jobs import ids
from jobs.blobs.payloads import Payloads
from jobs.errors import Fault, Invalid
from jobs.identity import Limit
from jobs.intake import feeding, spool, validation
from jobs.intake.free_space import DiskFloor
from jobs.intake.idempotency_key import Claim
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.states import JobClass, Versioning
from jobs.store.billing import spend
from jobs.store.db import Tx, notify_work
from jobs.store.jobs import idempotency
from jobs.store.jobs.insert import JobItems, NewJob, SubmittedJob, insert_job
from jobs.store.jobs.read import JobRow
from jobs.store.jobs.transfers import insert_validating
from jobs.store.notifier import WorkNotifier
from jobs.store.tenancy import acting
from jobs.telemetry.metrics import record
from jobs.telemetry.tracing import spans
from jobs.usecases.slice_versions import slice_versions
from jobs.views import jobs

RenderJob = Callable[[JobRow], bytes]
"""Renders the response to a submission, to be stored under its Idempotency-Key."""

AlsoStore = Callable[[Tx, JobRow], None]
"""Stores what else belongs to a job, in its transaction."""


def nothing_else(tx: Tx, job: JobRow) -> None:
    """Stores nothing."""


@dataclass(frozen=True, slots=True)
class Order:
    """A job as a client requests it, its items aside."""

    model: str  #: name, name@version or alias
    job_class: JobClass = "standard"  #: scheduling class
    priority: int = 0  #: -100 to 100, higher first
    params: dict[str, Any] | None = None  #: parameters of the model
    metadata: dict[str, str] | None = None  #: client's own keys and values
    name: str | None = None  #: name to find it by
    labels: dict[str, str] | None = None  #: pairs to find it by
    expires_in_s: float | None = 86_400.0  #: time to live, s; None: it never expires
    on_invalid: str = "reject"  #: reject the job, or fail its invalid items
    versioning: Versioning = "pinned"  #: whether its slices go by routes
    webhook_url: str | None = None  #: receiver of its webhook


@dataclass(frozen=True, slots=True, eq=False)
class Submission:
    """A checked job with its spooled items, before it is stored. Close it."""

    job: NewJob
    intake: spool.Intake
    claim: Claim | None  #: its Idempotency-Key
    answer: RenderJob
    versions: Sequence[str]  #: of its slices; empty: the job's

    @property
    def items(self) -> JobItems:
        """Its items, at their start."""
        self.intake.rows.seek(0)
        return JobItems(self.intake.rows, self.intake.bounds, self.intake.inputs, self.versions)

    def close(self) -> None:
        """Deletes what is spooled, and payloads of a job that wasn't stored."""
        self.intake.close()


def prepare(
    models: Registry,
    tenant: str,
    order: Order,
    *,
    array: Iterable[Any] | None = None,
    lines: Iterable[bytes | None] | None = None,
    faults: Iterable[Fault] = (),
    max_items: int = 10_000_000,
    max_bytes: int = sys.maxsize,
    floor: DiskFloor | None = None,
    claim: Claim | None = None,
    payloads: Payloads | None = None,
    limits: Sequence[Limit] = (),
    key: str = "",
    dialect: str = "native",
    asked: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    answer: RenderJob = jobs.job_json,
    place: feeding.Place = lambda index: ("items", index),
) -> Submission:
    """Checks a job, and spools its items; the database isn't touched.

    Its items come as an array of JSON values or as lines of NDJSON. faults: faults found before;
    max_items, max_bytes: most items, and most bytes of them as they are spooled; floor: of the
    disks; claim: the job's Idempotency-Key, stored with it and its response; limits, key: limits
    and API key (`key_…`) of the caller; dialect, asked: dialect, and what it was asked beyond the
    order; target: of the results; place: of an item of the array in the request. Raises
    UnknownModel, TooLarge, InsufficientStorage, or Invalid
    with all faults; BlobsAway where the store of `payloads` can't be reached.
    """
    model = models.resolve(order.model, tenant)
    found = [*faults, *_order_faults(model, order)]
    job_id = ids.new()
    taken = spool.Intake(
        job_id, tenant, model, strict=order.on_invalid == "reject", max_items=max_items,
        max_bytes=max_bytes, floor=floor, limits=limits, payloads=payloads,
    )  # fmt: skip
    try:
        taken.fault(*found)
        if lines is not None:
            feeding.add_lines(taken, lines)
        else:
            feeding.add_array(taken, array or (), place)
        job = NewJob(
            id=job_id, tenant=tenant, model=model, custom_ids=taken.custom_ids,
            input_bytes=taken.input_bytes, limits=tuple(limits),
            **_fields(order, key, dialect, asked, target),
        )  # fmt: skip
        versions = slice_versions(models, job, taken.bounds)
    except BaseException:
        taken.close()
        raise
    return Submission(job, taken, claim, answer, versions)


def submit(
    database: Database,
    models: Registry,
    tenant: str,
    order: Order,
    *,
    notifier: WorkNotifier | None = None,
    also: AlsoStore = nothing_else,
    **details: Any,
) -> JobRow:
    """Stores a job and returns its row, once it is committed.

    details: see `prepare`; notifier: notifies keepers after the commit, otherwise the transaction
    does; also: see `store_batch`. Raises what `prepare` raises, and QuotaExceeded or SpendCap;
    KeyInFlight or KeyReused where another request has the key. Nothing is stored then.
    """
    with closing(prepare(models, tenant, order, **details)) as submission:
        return store(database, submission, notifier, also)


def store(
    database: Database,
    submission: Submission,
    notifier: WorkNotifier | None = None,
    also: AlsoStore = nothing_else,
) -> JobRow:
    """Stores one job in a transaction of its own, as `submit` does."""
    return store_batch(database, [submission], notifier, also)[0]


def store_batch(
    database: Database,
    submissions: Sequence[Submission],
    notifier: WorkNotifier | None = None,
    also: AlsoStore = nothing_else,
    before: Callable[[Tx], None] = lambda tx: None,
) -> list[JobRow]:
    """Stores jobs of one request in one transaction: all of them, or none. Returns their rows.

    The first has the request's Idempotency-Key. Quotas bound the sum. also: stores what else
    belongs to the first, in the same transaction; before: called in it first, refuses them by what
    it raises. Raises as `submit` does.
    """
    first, rows = submissions[0], list[JobRow]()

    def insert(tx: Tx) -> JobRow:
        before(tx)
        rows.extend(insert_job(tx, each.job, each.items) for each in submissions)
        also(tx, rows[0])
        if notifier is None:
            notify_work(tx)
        return rows[0]

    def keep() -> None:
        for each in submissions:
            each.intake.keep()

    _committed(database, first.job.tenant, insert, first.claim, first.answer, keep)
    if notifier:
        notifier.notify()
    for each in submissions:
        count(each)
    return rows


def count(submission: Submission) -> None:
    """Counts a job that was stored."""
    record.job_submitted(
        submission.job.model.key, submission.job.job_class, submission.intake.total
    )


def submit_source(
    database: Database,
    models: Registry,
    tenant: str,
    order: Order,
    source: Mapping[str, Any],
    *,
    dialect: str = "native",
    asked: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    faults: Iterable[Fault] = (),
    claim: Claim | None = None,
    limits: Sequence[Limit] = (),
    key: str = "",
    answer: RenderJob = jobs.job_json,
) -> JobRow:
    """Stores a job whose items lie in a source; returns its `validating` row, once committed.

    order.model: "" where the dialect reads it from the lines. Raises as `submit` does for what is
    known before the items are read.
    """
    model = models.resolve(order.model, tenant) if order.model else None
    if found := [*faults, *_order_faults(model, order)]:
        plural = "fault" if len(found) == 1 else "faults"
        raise Invalid(f"{len(found)} {plural}, nothing was stored", faults=found)
    asked = {"on_invalid": order.on_invalid, **(asked or {})}
    job = SubmittedJob(
        id=ids.new(),
        tenant=tenant,
        source=orjson.dumps(source).decode(),
        model=model,
        **_fields(order, key, dialect, asked, target),
    )
    insert = partial(insert_validating, job=job, limits=limits)
    return _committed(database, tenant, insert, claim, answer)


def _committed(
    database: Database,
    tenant: str,
    insert: Callable[[Tx], JobRow],
    claim: Claim | None,
    answer: RenderJob,
    before_commit: Callable[[], None] = lambda: None,
) -> JobRow:
    """Inserts a job, with its Idempotency-Key, in one transaction."""
    with acting(database, tenant) as tx:
        if claim:
            idempotency.lock(tx, claim)
        spend.check_cap(tx, tenant)
        row = insert(tx)
        if claim:
            idempotency.store(tx, claim, row.id, answer(row))
        before_commit()
    return row


def _fields(
    order: Order,
    key: str,
    dialect: str,
    asked: Mapping[str, Any] | None,
    target: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Fields of SubmittedJob that the order and the request give."""
    return {
        "job_class": order.job_class,
        "priority": order.priority,
        "versioning": order.versioning,
        "params": orjson.dumps(order.params or {}).decode(),
        "metadata": orjson.dumps(order.metadata or {}).decode(),
        "name": order.name,
        "labels": _json(order.labels or None),
        "expires_in_s": order.expires_in_s,
        "webhook_url": order.webhook_url,
        "key": key,
        "dialect": dialect,
        "asked": _json(asked),
        "target": _json(target),
        "traceparent": spans.current_context(),
    }


def pinned_model(name: str) -> str:
    """Returns why a job that names a version can't go by routes."""
    bare = name.partition("@")[0]
    return f"{name!r} names one version: for slices by routes name {bare!r}, else leave it out"


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _order_faults(model: Model | None, order: Order) -> list[Fault]:
    faults = []
    if order.versioning == "routed" and "@" in order.model:
        faults.append(Fault(("versioning",), "pinned_model", pinned_model(order.model)))
    if model and (no := validation.refuse_params(model, order.params or {})):
        faults.append(Fault(("params",), *no))
    for name in ("params", "metadata", "name", "labels"):
        try:
            raw = validation.storable(getattr(order, name))
            if name == "params" and model and len(raw) > (most := model.limits.max_item_bytes):
                raise ValueError(
                    "too_long", f"{len(raw)} bytes of params; {model.key} takes {most}"
                )
        except ValueError as error:
            faults.append(Fault((name,), error.args[0], error.args[1]))
    return faults
