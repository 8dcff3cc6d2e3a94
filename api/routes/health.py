"""Liveness, readiness, version, metrics, and which models are ready."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy.exc import SQLAlchemyError

from api import background
from api.context import Context, ContextDep
from api.dependencies import Operator, Reader
from api.schemas.common import MODEL, Health, ServerVersion
from api.schemas.fleet import ModelList, ModelState
from jobs.errors import NoWorker, Unavailable
from jobs.models.model import Model
from jobs.store.queue import workers
from jobs.store.queue.workers import NOWHERE, ModelStatus
from jobs.telemetry.metrics import exposition
from jobs.version import VERSION
from migrations import schema

_REDIS_S = 1.0

router = APIRouter(tags=["health"])


@router.get("/livez", response_model=Health)
async def livez() -> dict[str, str]:
    """Returns 200 while this process answers; 503 once it can't mend itself, and ends."""
    if background.dead():
        raise Unavailable(background.unready())
    return {"status": "ok"}


@router.get("/readyz", response_model=Health)
async def readyz(context: ContextDep) -> dict[str, str]:
    """Returns 200 if the database is reachable and has a schema for this code, Redis answers, and
    nothing that runs in the background fails."""
    if reason := background.unready():
        raise Unavailable(reason, retry_after_s=1)
    database, redis = await asyncio.gather(_database(context), _redis_answers(context))
    if database.error:
        raise Unavailable(database.error, retry_after_s=1)
    if not redis:
        raise Unavailable("Redis can't be reached", retry_after_s=1)
    if missing := database.without_worker:
        raise NoWorker(f"no worker is ready for {', '.join(missing)}", retry_after_s=1)
    return {"status": "ok"}


@router.post("/ping", response_model=Health)
@router.get("/ping", response_model=Health)
@router.get("/health", response_model=Health)
async def health(context: ContextDep) -> dict[str, str]:
    """Returns 200 if `GET /readyz` does: `/health` is vLLM's name for it, `/ping` SageMaker's."""
    return await readyz(context)


@router.get("/version", response_model=ServerVersion)
async def version() -> dict[str, str]:
    """Returns the version of this process."""
    return {"version": VERSION}


class _Database(NamedTuple):
    error: str = ""
    without_worker: Sequence[str] = ()


async def _database(context: Context) -> _Database:
    """Asks the database, for a second at most: a probe must be answered whatever hangs."""
    try:
        found = await context.single_flight.run("readyz", partial(_ask_database, context))
    except SQLAlchemyError:
        return _Database("the database can't be reached")
    return found or _Database("the database doesn't answer")


def _ask_database(context: Context) -> _Database:
    if problem := schema.read(context.database).problem:
        return _Database(problem)
    return _Database("", _without_worker(context) if context.settings.await_workers else ())


async def _redis_answers(context: Context) -> bool:
    try:
        async with asyncio.timeout(_REDIS_S):
            return await context.gateway.reachable()
    except TimeoutError:
        return False


_EXAMPLE = (
    "# HELP millrace_calls_in_flight Calls of this process that have no answer yet\n"
    "# TYPE millrace_calls_in_flight gauge\n"
    "millrace_calls_in_flight 3.0\n"
)
_SAMPLES: dict[str, Any] = {
    "content": {"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}},
    "description": "every metric of this process; ops/docs/reference/metrics.md explains each",
}


@router.get("/metrics", response_class=Response, responses={200: _SAMPLES})
def read_metrics(request: Request, operator: Operator) -> Response:
    """Metrics in Prometheus' text format, or in OpenMetrics' where Accept asks for that."""
    samples, media_type = exposition.render(request.headers.get("accept", ""))
    return Response(samples, headers={"Content-Type": media_type})


@router.get("/models", response_model=ModelList)
def list_models(context: ContextDep, caller: Reader) -> dict[str, list[ModelState]]:
    """Lists every declared model version, and others that workers still have: a removed version
    serves until its work is done."""
    states, models = _worker_states(context), context.models_of(caller.tenant)
    declared = {model.key: model for model in models.with_adapters(models)}
    return {
        "data": [
            _state(key, declared.get(key), _status(states, declared.get(key), key))
            for key in (*declared, *sorted(states.keys() - declared.keys()))
        ]
    }


@router.get("/models/{model}/ready", response_model=ModelState)
def model_ready(
    context: ContextDep,
    caller: Reader,
    model: Annotated[str, Path(description="name, or name@version", examples=[MODEL])],
) -> ModelState:
    """Returns 200 once the model is loaded and warm in a worker; 503 before. A name without a
    version means any version."""
    versions = context.models_of(caller.tenant).versions(model)
    states = _worker_states(context)
    for version in versions:
        state = _state(version.key, version, _status(states, version, version.key))
        if state.ready:
            return state
    raise NoWorker(f"no worker is ready for {versions[0].key}", retry_after_s=2)


def _status(states: Mapping[str, ModelStatus], model: Model | None, key: str) -> ModelStatus:
    """Returns the status of a model: of an adapter that failed its own, else that of its base."""
    return states.get(key) or states.get(model.served_by.key if model else key, NOWHERE)


def _worker_states(context: Context) -> dict[str, ModelStatus]:
    with context.database.connect() as tx:
        return workers.model_statuses(tx, 2 * context.settings.lease_s)


def _without_worker(context: Context) -> list[str]:
    """Returns models without a ready worker.

    Models that are loaded on demand don't count, at rest or while a first call has them loaded, nor
    those that failed to load: they must not keep the others from being served.
    """
    states = _worker_states(context)
    known = {"ready", "absent", "failed"}
    return [
        model.key
        for model in context.models
        if not (model.on_demand or known & states.get(model.key, NOWHERE).states.keys())
    ]


def _state(key: str, model: Model | None, status: ModelStatus) -> ModelState:
    name, _, version = key.partition("@")
    ready = status.states.get("ready", 0)
    return ModelState(
        name=name,
        version=version,
        engine=model.engine if model else None,
        target_ms=model.target_ms if model else None,
        unit=model.spec.unit if model else None,
        ready=ready > 0,
        workers=ready,
        states=dict(status.states),
        load_ms=status.load_ms or None,
        error=status.error or None,
    )
