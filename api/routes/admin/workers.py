"""Workers, for operators: list, drain, take back into service."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from api.auth import audit
from api.context import Context, ContextDep
from api.dependencies import Operator
from api.schemas.fleet import Worker, WorkerList
from jobs.errors import Conflict, NotFound
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.monitoring import workers as store
from jobs.store.monitoring.workers import HeldModel, WorkerRow
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry import gpu_reading
from jobs.views.jobs import timestamp

router = APIRouter(tags=["workers"])

MAX_WORKER_ID = (1 << 31) - 1
WorkerId = Annotated[int, Path(description="a worker's id", ge=1, le=MAX_WORKER_ID, examples=[12])]
Details = Mapping[str, Mapping[str, Any]]
"""Reports of workers on themselves, by id."""


async def _details(context: ContextDep) -> Details:
    reports = await context.reports.read()
    return {report.name: report.details for report in reports.by_kind("worker").reports}


DetailsDep = Annotated[Details, Depends(_details)]


@router.get("/workers")
def list_workers(context: ContextDep, caller: Operator, told: DetailsDep) -> WorkerList:
    """Lists workers that live or ended in the last hour. A restarted worker has another id."""
    with context.acting(EVERYBODY) as tx:
        rows = store.page(tx)
        held = store.held(tx, [row.incarnation for row in rows])
    return WorkerList(data=[_worker(row, held, told) for row in rows])


@router.get("/workers/{worker_id}")
def get_worker(
    context: ContextDep, caller: Operator, told: DetailsDep, worker_id: WorkerId
) -> Worker:
    """Returns one worker, while it lives or after."""
    with context.acting(EVERYBODY) as tx:
        return _worker(worker_of(tx, worker_id), store.held(tx, [worker_id]), told)


@router.post("/workers/{worker_id}/drain")
def drain_worker(
    request: Request, context: ContextDep, caller: Operator, told: DetailsDep,
    worker_id: WorkerId,
) -> Worker:  # fmt: skip
    """Stops the worker from taking work: items in hand go back after the current launch. Its
    process stays until it is resumed or ends."""
    set_draining(request, context, caller, worker_id, drain=True)
    return get_worker(context, caller, told, worker_id)


@router.post("/workers/{worker_id}/undrain")
def undrain_worker(
    request: Request, context: ContextDep, caller: Operator, told: DetailsDep,
    worker_id: WorkerId,
) -> Worker:  # fmt: skip
    """Puts a drained worker back into service: its process ends, and its supervisor starts
    another, with another id."""
    set_draining(request, context, caller, worker_id, drain=False)
    return get_worker(context, caller, told, worker_id)


def _worker(row: WorkerRow, held: Iterable[HeldModel], told: Details) -> Worker:
    """Returns a worker with its models, of those that are held, and what it told of its device."""
    models = [
        {
            "model": model.model,
            "state": model.state,
            "memory_mb": round(model.memory_mb, 1) or None,
            "load_ms": round(model.load_ms, 1) or None,
            "error": model.error or None,
        }
        for model in held
        if model.incarnation == row.incarnation
    ]
    times = {
        name: timestamp(getattr(row, name)) for name in ("started_at", "heartbeat_at", "ended_at")
    }
    drain_asked = row.drain_asked_at is not None
    fields = {**asdict(row), **times, "id": row.incarnation, "models": models}
    own = told.get(str(row.incarnation), {})
    gpu = gpu_reading.of_details(own)
    device = {
        "device_kind": own.get("kind"),
        "price": own.get("price"),
        "gpu": gpu and gpu.as_json(),
    }
    return Worker.model_validate({**fields, **device, "drain_asked": drain_asked})


def set_draining(
    request: Request, context: Context, caller: Caller, id: int, *, drain: bool
) -> None:
    """Asks a worker to drain, or to resume. Raises NotFound; Conflict where it has ended."""
    with context.acting(EVERYBODY) as tx:
        worker_of(tx, id)
        if not store.request_drain(tx, id, drain):
            raise Conflict(f"worker {id} has ended")
        audit.record(tx, request, caller, f"worker.{'drain' if drain else 'undrain'}", str(id))


def worker_of(tx: Tx, id: int) -> WorkerRow:
    """Returns the worker's row. Raises NotFound."""
    row = store.one(tx, id)
    if row is None:
        raise NotFound(f"there is no worker {id}")
    return row
