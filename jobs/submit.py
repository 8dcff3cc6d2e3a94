"""Submitting a job: all of it is checked and spooled first, then stored in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Engine as Database
from sqlalchemy import RowMapping

from jobs import ids, intake, items, views
from jobs.blobs.payloads import Payloads
from jobs.errors import Fault
from jobs.idempotency import Claim
from jobs.identity import Limit
from jobs.limits import most_items
from jobs.registry import Model, Registry
from jobs.states import JobClass
from jobs.store import idempotency, spend
from jobs.store.submissions import NewJob, insert_job
from jobs.store.tenancy import acting


@dataclass(frozen=True, slots=True)
class Order:
    """A job as a client asks for it, its items aside. asked: what its dialect was asked beyond."""

    model: str
    job_class: JobClass = "standard"
    priority: int = 0
    params: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    expires_in_s: float | None = 86_400.0
    on_invalid: str = "reject"
    webhook_url: str | None = None
    dialect: str = "native"
    asked: dict[str, Any] | None = None


def submit(
    database: Database,
    models: Registry,
    tenant: str,
    order: Order,
    *,
    array: Iterable[Any] | None = None,
    lines: Iterable[bytes | None] | None = None,
    faults: Iterable[Fault] = (),
    max_items: int = 10_000_000,
    claim: Claim | None = None,
    payloads: Payloads | None = None,
    limits: Sequence[Limit] = (),
    key: str = "",
) -> RowMapping:
    """Stores a job and returns its row, once it is committed.

    Its items come as an array of JSON values or as lines of NDJSON. faults: what is already known
    to be wrong. claim: the job's Idempotency-Key, stored with it and its answer. limits: those that
    concern the caller; key: the one (`key_â¦`) that it came by. Raises QuotaExceeded, SpendCap,
    UnknownModel, or Invalid with everything that is wrong; KeyInFlight or KeyReused where another
    request has the key; BlobsAway where `payloads` has a store and it can't be reached. Nothing is
    stored then.
    """
    model = models.resolve(order.model)
    found = [*faults, *_order_faults(model, order)]
    job_id = ids.new()
    taken = intake.Intake(
        job_id,
        tenant,
        model,
        strict=order.on_invalid == "reject",
        max_items=max_items,
        bound=most_items(limits, model.name),
        payloads=payloads,
    )
    try:
        taken.fault(*found)
        if lines is not None:
            intake.add_lines(taken, lines)
        else:
            intake.add_array(taken, array or ())
        job = NewJob(
            id=job_id,
            tenant=tenant,
            model=model,
            job_class=order.job_class,
            priority=order.priority,
            params=orjson.dumps(order.params or {}).decode(),
            metadata=orjson.dumps(order.metadata or {}).decode(),
            custom_ids=taken.custom_ids,
            expires_in_s=order.expires_in_s,
            webhook_url=order.webhook_url,
            dialect=order.dialect,
            asked=None if order.asked is None else orjson.dumps(order.asked).decode(),
            input_bytes=taken.input_bytes,
            limits=tuple(limits),
            key=key,
        )
        with acting(database, tenant) as tx:
            if claim:
                idempotency.take(tx, claim)
            spend.refuse(tx, tenant)
            row = insert_job(tx, job, taken.rows, taken.bounds)
            if claim:
                idempotency.keep(tx, claim, job_id, views.job_json(row))
            taken.keep()
        return row
    finally:
        taken.close()


def _order_faults(model: Model, order: Order) -> list[Fault]:
    faults = []
    if no := items.refuse_params(model, order.params or {}):
        faults.append(Fault(("params",), *no))
    for name, value in (("params", order.params), ("metadata", order.metadata)):
        try:
            items.storable(value)
        except ValueError as error:
            faults.append(Fault((name,), error.args[0], error.args[1]))
    return faults
