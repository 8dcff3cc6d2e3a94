"""POST /infer: lean, asynchronous, and without the database."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from api import bodies, idempotency
from api.context import Context, Shared, Tenant
from api.errors import faults_of
from api.gateway import Answer
from api.schemas import CallAnswer, CallRequest
from jobs import clock, ids, items
from jobs.errors import Fault, Invalid, MillraceError, Unavailable, WorkerLost
from jobs.registry import Model

router = APIRouter(tags=["calls"])

_DOC: dict[str, Any] = {
    "parameters": [idempotency.PARAMETER],
    "requestBody": {
        "required": True,
        "content": {bodies.JSON: {"schema": {"$ref": "#/components/schemas/CallRequest"}}},
    },
}
_REFUSALS = {
    "invalid_input": Invalid,
    "engine_error": MillraceError,
    "worker_lost": WorkerLost,
    "transient": Unavailable,
    "rate_limited": Unavailable,
}


@router.post(
    "/infer",
    response_model=CallAnswer,
    openapi_extra=_DOC,
    responses={200: idempotency.REPLAY_DOC},
)
async def infer(request: Request, shared: Shared, tenant: Tenant) -> Response:
    """One call, answered within its deadline or refused."""
    since_s = clock.monotonic()
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, shared.settings.require_idempotency_key)
    raw = await bodies.whole(request, shared.models.max_line_bytes)
    asked = _parse(raw)
    model = shared.models.resolve(asked.model)
    _check(model, asked)

    async def answer() -> bytes:
        return await _answer(request, shared, tenant, model, asked, since_s)

    if key is None:
        return Response(await answer(), media_type=bodies.JSON)
    upload = idempotency.Upload(request, tenant, key)
    upload.add(raw)
    body, replayed = await shared.kept.once(upload.finish(), asked.timeout_ms, answer)
    headers = idempotency.REPLAYED if replayed else None
    return Response(body, headers=headers, media_type=bodies.JSON)


async def _answer(
    request: Request, shared: Context, tenant: str, model: Model, asked: CallRequest, since_s: float
) -> bytes:
    id = ids.show("call", ids.new())
    call = shared.calls.infer(id, model, tenant, asked.input, asked.params, asked.timeout_ms)
    output, error, units, timing = await _unless_gone(request, call)
    if error is not None:
        code, message = error
        raise _REFUSALS.get(code, MillraceError)(message, faults=[Fault(("input",), code, message)])
    timing["total_ms"] = round((clock.monotonic() - since_s) * 1000, 3)
    body = {
        "id": id,
        "model": model.name,
        "version": model.version,
        "output": output,
        "usage": {model.kind.unit: units},
        "timing": timing,
    }
    return orjson.dumps(body)


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
