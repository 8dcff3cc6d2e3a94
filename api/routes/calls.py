"""POST /infer: lean, asynchronous, and without the database."""

from collections.abc import Iterator
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from api.context import Context, Shared
from api.dependencies import Inferrer, may
from api.gateway import metrics
from api.gateway.fallbacks import FallbackPlan, fallback_plans
from api.gateway.inference import InferenceSession, watched
from api.http import bodies, idempotency
from api.http.errors import error_response, faults_of
from api.http.request_id import request_id
from api.schemas.calls import CallAnswer, CallRequest
from jobs import clock
from jobs.errors import Fault, Invalid
from jobs.intake import validation
from jobs.models.model import Model

router = APIRouter(tags=["calls"])
PATH = "/infer"

_DOC: dict[str, Any] = {
    "parameters": [idempotency.PARAMETER],
    "requestBody": {
        "required": True,
        "content": {bodies.JSON: {"schema": {"$ref": "#/components/schemas/CallRequest"}}},
    },
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

    standing: dict[str, str] = {}

    async def answer() -> bytes:
        found = fallback_plans(models, model, asked.input, asked.params)
        with watched(request) as gone:
            terms = asked.call_class, asked.timeout_ms, since_s, gone, standing
            return await _answer(
                InferenceSession(shared.calls, shared.records, shared.models, caller, *terms),
                asked,
                found,
            )

    if key is None:
        return Response(await answer(), headers=standing, media_type=bodies.JSON)
    upload = idempotency.Upload(request, caller.tenant, key)
    upload.add(raw)
    body, replayed = await shared.kept.once(upload.finish(), asked.timeout_ms, answer)
    headers = idempotency.REPLAYED if replayed else standing
    return Response(body, headers=headers, media_type=bodies.JSON)


async def serve(scope: Scope, receive: Receive, send: Send, shared: Context) -> None:
    """The same, for who comes without FastAPI."""
    request = Request(scope, receive)
    id = request_id(scope)
    try:
        response = await infer(request, shared, await may(request, shared, "infer"))
        response.raw_headers.append((b"x-request-id", id.encode()))
    except Exception as error:
        response = error_response(error, id)
    await response(scope, receive, send)


async def _answer(
    asking: InferenceSession, asked: CallRequest, found: Iterator[FallbackPlan]
) -> bytes:
    called = await asking.call(asked.input, found)
    way = called.way
    total_ms = round((clock.monotonic() - asking.since_s) * 1000, 3)
    body = {
        "id": called.id,
        "model": way.model.name,
        "version": way.model.version,
        "output": called.output,
        "usage": {way.model.spec.unit: called.units},
        "timing": {
            "gateway_ms": metrics.gateway_ms(total_ms, called.timing),
            **called.timing,
            "total_ms": total_ms,
        },
    }
    if way.degraded:
        body["degraded"] = way.degraded
    return orjson.dumps(body)


def _parse(raw: bytes) -> CallRequest:
    value: Any = validation.parse_json(raw)
    try:
        return CallRequest.model_validate(value)
    except ValidationError as error:
        faults = faults_of(error.errors(include_url=False))
        detail = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        raise Invalid(detail or "not a call", faults=faults) from None


def _check(model: Model, asked: CallRequest) -> None:
    if model.split_inputs(asked.input) is not None:
        message = (
            f"{model.key} takes one input a call, not a list of them: "
            "send the list to POST /v1/embeddings, or make several calls"
        )
        raise Invalid(message, faults=[Fault(("input",), "type", message)])
    plain = isinstance(asked.input, str) and not asked.params  # by far the most
    item = validation.check(asked.input, (), None, model, True) if plain else []
    if isinstance(item, list):
        wrapped = {"input": asked.input, "params": asked.params}
        item = validation.check(wrapped, (), None, model, True)
    if isinstance(item, list):
        raise Invalid("; ".join(fault.message for fault in item), faults=item)
