"""POST /infer: lean, asynchronous, and without the database."""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from api import bodies, idempotency
from api.auth import Inferrer, may
from api.context import Context, Shared
from api.errors import answer_to, faults_of
from api.gateway import Asked
from api.pools import SHARES
from api.refusals import later_s
from api.requests import new_request_id
from api.schemas import CallAnswer, CallRequest
from api.ways import Way, ways
from jobs import clock, ids, items
from jobs.errors import DeadlinePassed, Fault, Invalid, MillraceError, Unavailable, WorkerLost
from jobs.identity import Caller
from jobs.registry import Model

router = APIRouter(tags=["calls"])
PATH = "/infer"

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
    "deadline_passed": DeadlinePassed,
    "transient": Unavailable,
    "rate_limited": Unavailable,
}


@router.post(
    PATH,
    response_model=CallAnswer,
    openapi_extra=_DOC,
    responses={200: idempotency.REPLAY_DOC},
)
async def infer(request: Request, shared: Shared, caller: Inferrer) -> Response:
    """One call, answered within its deadline or refused."""
    since_s = clock.monotonic()
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, shared.settings.require_idempotency_key)
    models = shared.models
    raw = await bodies.whole(request, models.max_line_bytes)
    asked = _parse(raw)
    model = await shared.calls.pools.choose(models.versions(asked.model))
    _check(model, asked)

    async def answer() -> bytes:
        found = ways(models, model, asked.input, asked.params)
        return await _answer(request, shared, caller, found, asked, since_s)

    if key is None:
        return Response(await answer(), media_type=bodies.JSON)
    upload = idempotency.Upload(request, caller.tenant, key)
    upload.add(raw)
    body, replayed = await shared.kept.once(upload.finish(), asked.timeout_ms, answer)
    headers = idempotency.REPLAYED if replayed else None
    return Response(body, headers=headers, media_type=bodies.JSON)


async def serve(scope: Scope, receive: Receive, send: Send, shared: Context) -> None:
    """The same, for who comes without FastAPI."""
    request = Request(scope, receive)
    id = new_request_id()
    try:
        response = await infer(request, shared, await may(request, shared, "infer"))
        response.raw_headers.append((b"x-request-id", id.encode()))
    except Exception as error:
        response = answer_to(error, id)
    await response(scope, receive, send)


async def _answer(
    request: Request, shared: Context, caller: Caller, found: Iterator[Way], asked: CallRequest,
    since_s: float,
) -> bytes:  # fmt: skip
    gone = asyncio.ensure_future(request.receive())  # a client that goes takes its call back
    try:
        call = Asked(
            id=ids.show("call", ids.new()),
            tenant=caller.tenant,
            value=asked.input,
            share=SHARES[asked.call_class],
            job_class=asked.call_class,
            weight=caller.weight,
            timeout_ms=asked.timeout_ms,
            until_s=since_s + asked.timeout_ms / 1000,
            gone=gone,
        )
        way, (output, error, units, timing) = await shared.calls.infer(call, found)
    finally:
        gone.cancel()
    if error is not None:
        raise _error(*error)
    timing["total_ms"] = round((clock.monotonic() - since_s) * 1000, 3)
    body = {
        "id": call.id,
        "model": way.model.name,
        "version": way.model.version,
        "output": output,
        "usage": {way.model.kind.unit: units},
        "timing": timing,
    }
    if way.degraded:
        body["degraded"] = way.degraded
    return orjson.dumps(body)


def _error(code: str, message: str) -> MillraceError:
    kind = _REFUSALS.get(code, MillraceError)
    soon_s = later_s() if issubclass(kind, Unavailable) else None
    return kind(message, faults=[Fault(("input",), code, message)], retry_after_s=soon_s)


def _parse(raw: bytes) -> CallRequest:
    value: Any = items.parse_json(raw)
    try:
        return CallRequest.model_validate(value)
    except ValidationError as error:
        faults = faults_of(error.errors(include_url=False))
        detail = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        raise Invalid(detail or "not a call", faults=faults) from None


def _check(model: Model, asked: CallRequest) -> None:
    plain = isinstance(asked.input, str) and not asked.params  # by far the most
    item = items.check(asked.input, (), None, model, True) if plain else []
    if isinstance(item, list):
        wrapped = {"input": asked.input, "params": asked.params}
        item = items.check(wrapped, (), None, model, True)
    if isinstance(item, list):
        raise Invalid("; ".join(fault.message for fault in item), faults=item)
