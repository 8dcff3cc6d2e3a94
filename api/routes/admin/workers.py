"""Workers, for operators: who is there, and whom to drain."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from api.auth import audit
from api.context import Context, Shared
from api.dependencies import Operator
from api.http.responses import json_response
from api.schemas.fleet import Worker, WorkerList
from jobs.errors import Conflict, NotFound
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.monitoring import workers as store
from jobs.store.monitoring.workers import WorkerRow
from jobs.store.tenancy import EVERYBODY
from jobs.views import workers

router = APIRouter(tags=["workers"])

MOST_ID = (1 << 31) - 1
WorkerId = Annotated[int, Path(description="a worker's id", ge=1, le=MOST_ID, examples=[12])]


@router.get("/workers", response_model=WorkerList)
def list_workers(shared: Shared, caller: Operator) -> Response:
    """Those that live, and those that ended in the last hour. One that starts again has another
    id."""
    with shared.acting(EVERYBODY) as tx:
        rows = store.page(tx)
        held = store.held(tx, [row.incarnation for row in rows])
    found = [
        workers.worker_object(row, [one for one in held if one.incarnation == row.incarnation])
        for row in rows
    ]
    return json_response({"data": found})


@router.get("/workers/{worker_id}", response_model=Worker)
def get_worker(shared: Shared, caller: Operator, worker_id: WorkerId) -> Response:
    """One worker, while it lives or after."""
    with shared.acting(EVERYBODY) as tx:
        row = worker_of(tx, worker_id)
        return json_response(workers.worker_object(row, store.held(tx, [worker_id])))


@router.post("/workers/{worker_id}/drain", response_model=Worker)
def drain_worker(
    request: Request, shared: Shared, caller: Operator, worker_id: WorkerId
) -> Response:
    """It takes no more work: what it has in hand goes back after the launch that it is in. It lives
    on, with nothing to do, until it is wanted again or ends."""
    ask(request, shared, caller, worker_id, drain=True)
    return get_worker(shared, caller, worker_id)


@router.post("/workers/{worker_id}/undrain", response_model=Worker)
def undrain_worker(
    request: Request, shared: Shared, caller: Operator, worker_id: WorkerId
) -> Response:
    """It is wanted again: its process ends, and its supervisor starts another, with another id."""
    ask(request, shared, caller, worker_id, drain=False)
    return get_worker(shared, caller, worker_id)


def ask(request: Request, shared: Context, caller: Caller, id: int, *, drain: bool) -> None:
    """Raises NotFound; Conflict where it has ended."""
    with shared.acting(EVERYBODY) as tx:
        worker_of(tx, id)
        if not store.request_drain(tx, id, drain):
            raise Conflict(f"worker {id} has ended")
        audit.record(tx, request, caller, f"worker.{'drain' if drain else 'undrain'}", str(id))


def worker_of(tx: Tx, id: int) -> WorkerRow:
    """Raises NotFound."""
    row = store.one(tx, id)
    if row is None:
        raise NotFound(f"there is no worker {id}")
    return row
