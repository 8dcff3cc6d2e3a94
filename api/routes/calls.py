"""POST /infer: lean, asynchronous, and without the database."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from api import bodies
from api.context import Shared, Tenant
from api.errors import faults_of
from api.gateway import Answer
from api.schemas import CallAnswer, CallRequest
from jobs import clock, ids, items
from jobs.errors import Fault, Invalid, Malformed, MillraceError, WorkerLost
from jobs.registry import Model

router = APIRouter(tags=["calls"])

_DOC = {
    "requestBody": {
        "required": True,
        "content": {bodies.JSON: {"schema": {"$ref": "#/components/schemas/CallRequest"}}},
    }
}
_REFUSALS = {
    "invalid_input": Invalid,
    "engine_error": MillraceError,
    "worker_lost": WorkerLost,
}


@router.post("/infer", response_model=CallAnswer, openapi_extra=_DOC)
async def infer(request: Request, shared: Shared, tenant: Tenant) -> Response:
    """One call, answered within its deadline or refused."""
    since_s = clock.monotonic()
    bodies.media_type(request, bodies.JSON)
    if "idempotency-key" in request.headers:
        raise Malformed("Idempotency-Key is not supported yet; send the request without it")
    asked = _parse(await bodies.whole(request, shared.models.max_line_bytes))
    model = shared.models.resolve(asked.model)
    _check(model, asked)
    id = ids.show("call", ids.new())
    call = shared.calls.infer(id, model, tenant, asked.input, asked.params, asked.timeout_ms)
    output, error, units, timing = await _unless_gone(request, call)
    if error is not None:
        code, message = error
        raise _REFUSALS.get(code, MillraceError)(message, faults=[Fault(("input",), code, message)])
    timing["total_ms"] = round((clock.monotonic() - since_s) * 1000, 3)
    answer = {
        "id": id,
        "model": model.name,
        "version": model.version,
        "output": output,
        "usage": {model.kind.unit: units},
        "timing": timing,
    }
    return Response(orjson.dumps(answer), media_type=bodies.JSON)


async def _unless_gone(request: Request, call: Coroutine[Any, Any, Answer]) -> Answer:
    """Awaits the call; a client that goes away takes it back."""
    answer, gone = asyncio.ensure_future(call), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


def _parse(raw: bytes) -> CallRequest:
    value: Any = items.parse_json(raw)
    try:
        return CallRequest.model_validate(value)
    except ValidationError as error:
        faults = faults_of(error.errors(include_url=False))
        detail = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        raise Invalid(detail or "not a call", faults=faults) from None


def _check(model: Model, asked: CallRequest) -> None:
    wrapped = {"input": asked.input, "params": asked.params}
    item = items.check(wrapped, (), None, model, True)
    if isinstance(item, list):
        raise Invalid("; ".join(fault.message for fault in item), faults=item)
