"""Whether this process lives, whether it can serve, and which models are ready."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from api.context import Context, Shared
from api.dependencies import Operator, Reader
from api.schemas import examples
from api.schemas.common import Health
from api.schemas.fleet import ModelList, ModelState
from jobs.errors import NoWorker, Unavailable
from jobs.models.model import Model
from jobs.store.queue import workers
from jobs.store.queue.workers import NOWHERE, ModelStatus
from jobs.telemetry.metrics import exposition
from migrations.run import is_current

router = APIRouter(tags=["health"])


@router.get("/livez", response_model=Health)
async def livez() -> dict[str, str]:
    """This process answers."""
    return {"status": "ok"}


@router.get("/readyz", response_model=Health)
async def readyz(shared: Shared) -> dict[str, str]:
    """The database is migrated and reachable, and so is Redis."""
    try:
        current = await run_in_threadpool(is_current, shared.database)
    except SQLAlchemyError as error:
        raise Unavailable("the database can't be reached", retry_after_s=1) from error
    if not current:
        raise Unavailable("the database is not migrated: run `millrace migrate`")
    if not await shared.calls.reachable():
        raise Unavailable("Redis can't be reached", retry_after_s=1)
    if shared.settings.await_workers:
        missing = await run_in_threadpool(_without_worker, shared)
        if missing:
            raise NoWorker(f"no worker is ready for {', '.join(missing)}", retry_after_s=1)
    return {"status": "ok"}


_SAMPLES: dict[str, Any] = {
    "content": {"text/plain": {"schema": {"type": "string"}, "example": examples.METRICS}},
    "description": "every metric of this process; ops/docs/metrics.md says what each means",
}


@router.get("/metrics", response_class=Response, responses={200: _SAMPLES})
def read_metrics(request: Request, operator: Operator) -> Response:
    """What Prometheus scrapes, in its text format or, where that is asked for, OpenMetrics'."""
    samples, media_type = exposition.exposed(request.headers.get("accept", ""))
    return Response(samples, headers={"Content-Type": media_type})


@router.get("/models", response_model=ModelList)
def list_models(shared: Shared, caller: Reader) -> dict[str, list[ModelState]]:
    """Every model version that is declared here, and what else workers have: a version that was
    removed serves until its work is done."""
    standing = _standing(shared)
    declared = {model.key: model for model in shared.models}
    return {
        "data": [
            _state(key, declared.get(key), standing.get(key, NOWHERE))
            for key in (*declared, *sorted(standing.keys() - declared.keys()))
        ]
    }


@router.get("/models/{model}/ready", response_model=ModelState)
def model_ready(
    shared: Shared,
    caller: Reader,
    model: Annotated[str, Path(description="name, or name@version", examples=[examples.MODEL])],
) -> ModelState:
    """200 once it is loaded and warm somewhere; 503 before. Of a bare name: any version."""
    versions, standing = shared.models.versions(model), _standing(shared)
    for found in versions:
        state = _state(found.key, found, standing.get(found.key, NOWHERE))
        if state.ready:
            return state
    raise NoWorker(f"no worker is ready for {versions[0].key}", retry_after_s=2)


def _standing(shared: Context) -> dict[str, ModelStatus]:
    with shared.database.connect() as tx:
        return workers.model_statuses(tx, 2 * shared.settings.lease_s)


def _without_worker(shared: Context) -> list[str]:
    """Not those that are loaded when they are asked for, nor what can't be loaded: it must not
    keep the others from being served."""
    standing = _standing(shared)
    known = {"ready", "absent", "failed"}
    return [
        model.key
        for model in shared.models
        if not known & standing.get(model.key, NOWHERE).states.keys()
    ]


def _state(key: str, model: Model | None, standing: ModelStatus) -> ModelState:
    name, _, version = key.partition("@")
    ready = standing.states.get("ready", 0)
    return ModelState(
        name=name,
        version=version,
        engine=model.engine if model else None,
        target_ms=model.target_ms if model else None,
        unit=model.kind.unit if model else None,
        ready=ready > 0,
        workers=ready,
        states=dict(standing.states),
        load_ms=standing.load_ms or None,
        error=standing.error or None,
    )
