"""Health and metadata of the server, of models, and the repository index."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from api.compat.oip.schemas import (
    ERRORS,
    INDEX,
    IndexEntry,
    Live,
    ModelConfig,
    ModelMetadata,
    Ready,
    ReadyModel,
    ServerMetadata,
)
from api.compat.oip.signatures import config_object, metadata_object, models_of
from api.context import ContextDep
from api.dependencies import Reader
from api.http.bodies import JSON
from api.routes import health
from api.schemas.fleet import ModelState
from jobs.errors import Malformed
from jobs.intake.validation import parse_json
from jobs.store.queue.workers import LOADING_STATES

router = APIRouter(prefix="/v2", tags=["open inference protocol"], responses=ERRORS)

_EXTENSIONS = ["binary_tensor_data", "model_configuration", "schedule_policy"]
_INDEX_DOC: dict[str, Any] = {
    "requestBody": {
        "content": {
            JSON: {
                "schema": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
                "example": {"ready": True},
            }
        }
    }
}
_MODEL = "/models/{model}"
_VERSION = "/models/{model}/versions/{version}"


@router.get("/health/live", response_model=Live)
async def live() -> dict[str, bool]:
    """Returns 200 while this process answers."""
    return {"live": True}


@router.get("/health/ready", response_model=Ready)
async def ready(context: ContextDep) -> dict[str, bool]:
    """Returns 200 if `GET /readyz` does."""
    await health.readyz(context)
    return {"ready": True}


@router.get("/", include_in_schema=False)
@router.get("", response_model=ServerMetadata)
async def server(request: Request, caller: Reader) -> dict[str, Any]:
    """Returns the server's name, version and extensions."""
    return {"name": "millrace", "version": request.app.version, "extensions": _EXTENSIONS}


@router.get(_VERSION, response_model=ModelMetadata)
async def version_metadata(
    context: ContextDep, caller: Reader, model: str, version: str
) -> dict[str, Any]:
    """Returns the input and output tensors of one version."""
    [model_version] = models_of(context.models_of(caller.tenant), model, version)
    return metadata_object(model_version, context.models_of(caller.tenant).versions(model))


@router.get(_MODEL, response_model=ModelMetadata)
async def model_metadata(context: ContextDep, caller: Reader, model: str) -> dict[str, Any]:
    """Returns the input and output tensors of the version declared last, and all versions."""
    versions = models_of(context.models_of(caller.tenant), model)
    return metadata_object(versions[0], versions)


@router.get(_VERSION + "/config", response_model=ModelConfig)
async def version_config(context: ContextDep, caller: Reader, model: str, version: str) -> Any:
    """Returns a version's configuration in Triton's format."""
    return config_object(models_of(context.models_of(caller.tenant), model, version)[0])


@router.get(_MODEL + "/config", response_model=ModelConfig)
async def model_config(context: ContextDep, caller: Reader, model: str) -> Any:
    """Returns the configuration of the version declared last, in Triton's format."""
    return config_object(models_of(context.models_of(caller.tenant), model)[0])


@router.get(_VERSION + "/ready", response_model=ReadyModel)
def version_ready(context: ContextDep, caller: Reader, model: str, version: str) -> Any:
    """Returns 200 once this version is loaded and warm in a worker; 503 before."""
    [model_version] = models_of(context.models_of(caller.tenant), model, version)
    health.model_ready(context, caller, model_version.key)
    return {"name": model, "ready": True}


@router.get(_MODEL + "/ready", response_model=ReadyModel)
def model_ready(context: ContextDep, caller: Reader, model: str) -> Any:
    """Returns 200 once any version is loaded and warm in a worker; 503 before."""
    health.model_ready(context, caller, model)
    return {"name": model, "ready": True}


@router.post(
    "/repository/index",
    response_model=list[IndexEntry],
    openapi_extra=_INDEX_DOC,
    responses={200: {"content": {JSON: {"example": INDEX}}}},
)
async def repository_index(request: Request, context: ContextDep, caller: Reader) -> Any:
    """Lists every version; with the body {"ready": true}, ready ones only."""
    raw = await request.body()
    options = parse_json(raw) if raw else {}
    if not isinstance(options, dict) or not isinstance(options.get("ready", False), bool):
        raise Malformed('the body must be {"ready": true}, {"ready": false}, or nothing')
    states = (await run_in_threadpool(health.list_models, context, caller))["data"]
    return [_entry(state) for state in states if state.ready or not options.get("ready")]


def _entry(state: ModelState) -> IndexEntry:
    loading = state.states.keys() & set(LOADING_STATES)
    word: Any = "READY" if state.ready else "LOADING" if loading else "UNAVAILABLE"
    return IndexEntry(name=state.name, version=state.version, state=word, reason=state.error or "")
