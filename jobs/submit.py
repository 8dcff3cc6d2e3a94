"""Submitting a job: all of it is checked and spooled first, then stored in one transaction."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Engine as Database
from sqlalchemy import RowMapping

from jobs import ids, intake, items
from jobs.errors import Fault
from jobs.registry import Model, Registry
from jobs.states import JobClass
from jobs.store import reading
from jobs.store.submissions import NewJob, insert_job


@dataclass(frozen=True, slots=True)
class Order:
    """A job as a client asks for it, its items aside."""

    model: str
    job_class: JobClass = "standard"
    priority: int = 0
    params: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    expires_in_s: float | None = 86_400.0
    on_invalid: str = "reject"
    webhook_url: str | None = None


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
) -> RowMapping:
    """Stores a job and returns its row, once it is committed.

    Its items come as an array of JSON values or as lines of NDJSON. faults: what is already known
    to be wrong. Raises UnknownModel, or Invalid with everything that is wrong; nothing is stored
    then.
    """
    model = models.resolve(order.model)
    found = [*faults, *_order_faults(model, order)]
    job_id = ids.new()
    taken = intake.Intake(
        job_id, tenant, model, strict=order.on_invalid == "reject", max_items=max_items
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
        )
        with database.begin() as tx:
            insert_job(tx, job, taken.rows, taken.bounds)
            return reading.one(tx, tenant, job_id)
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
