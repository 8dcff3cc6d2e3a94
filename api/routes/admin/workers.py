"""Workers, for operators: who is there, and whom to drain."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from sqlalchemy import RowMapping

from api.auth import audit
from api.context import Context, ContextDep
from api.dependencies import Operator
from api.schemas.fleet import Worker, WorkerList
from jobs.errors import Conflict, NotFound
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.monitoring import workers as store
from jobs.store.tenancy import EVERYBODY
from jobs.views import workers

router = APIRouter(tags=["workers"])

MOST_ID = (1 << 31) - 1
WorkerId = Annotated[int, Path(description="a worker's id", ge=1, le=MOST_ID, examples=[12])]


@router.get("/workers")
def list_workers(context: ContextDep, caller: Operator) -> WorkerList:
    """Those that live, and those that ended in the last hour. One that starts again has another
    id."""
    with context.acting(EVERYBODY) as tx:
        rows = store.page(tx)
        held = store.held(tx, [row["incarnation"] for row in rows])
    data = [
        workers.worker_object(
            row, [model for model in held if model["incarnation"] == row["incarnation"]]
        )
        for row in rows
    ]
    return WorkerList.model_validate({"data": data})


@router.get("/workers/{worker_id}")
def get_worker(context: ContextDep, caller: Operator, worker_id: WorkerId) -> Worker:
    """One worker, while it lives or after."""
    with context.acting(EVERYBODY) as tx:
        row = worker_of(tx, worker_id)
        return Worker.model_validate(workers.worker_object(row, store.held(tx, [worker_id])))


@router.post("/workers/{worker_id}/drain")
def drain_worker(
    request: Request, context: ContextDep, caller: Operator, worker_id: WorkerId
) -> Worker:
    """It takes no more work: what it has in hand goes back after the launch that it is in. It lives
    on, with nothing to do, until it is wanted again or ends."""
    set_draining(request, context, caller, worker_id, drain=True)
    return get_worker(context, caller, worker_id)


@router.post("/workers/{worker_id}/undrain")
def undrain_worker(
    request: Request, context: ContextDep, caller: Operator, worker_id: WorkerId
) -> Worker:
    """It is wanted again: its process ends, and its supervisor starts another, with another id."""
    set_draining(request, context, caller, worker_id, drain=False)
    return get_worker(context, caller, worker_id)


def set_draining(
    request: Request, context: Context, caller: Caller, id: int, *, drain: bool
) -> None:
    """Raises NotFound; Conflict where it has ended."""
    with context.acting(EVERYBODY) as tx:
        worker_of(tx, id)
        if not store.ask_to_drain(tx, id, drain):
            raise Conflict(f"worker {id} has ended")
        audit.record(tx, request, caller, f"worker.{'drain' if drain else 'undrain'}", str(id))


def worker_of(tx: Tx, id: int) -> RowMapping:
    """Raises NotFound."""
    row = store.one(tx, id)
    if row is None:
        raise NotFound(f"there is no worker {id}")
    return row
