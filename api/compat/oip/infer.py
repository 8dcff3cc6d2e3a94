"""POST /v2/models/{model}/infer, on the fast path and on the terms of POST /infer."""

import re
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from api.compat.oip import signatures, wire
from api.compat.oip.schemas import InferenceResponse
from api.compat.oip.wire import Inference
from api.context import Context, ContextDep
from api.dependencies import Inferrer, authorize
from api.gateway.fallbacks import fallback_plans
from api.gateway.fan_out import fan_out
from api.gateway.inference import CallResult, InferenceSession, watch_disconnect
from api.http import bodies, compression
from api.http.errors import error_response
from api.http.request_id import request_id
from jobs import clock
from jobs.errors import Malformed, TooLarge
from jobs.identity import Caller
from jobs.intake import validation
from jobs.models.inputs import tensors
from jobs.models.inputs.tensors import Tensor
from jobs.models.model import Model

router = APIRouter(prefix="/v2")

_PATH = re.compile("/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
_BINARY = "application/octet-stream"
_ANY_BYTES = {"schema": {"type": "string", "format": "binary"}}
_LENGTH: dict[str, Any] = {
    "description": "bytes of the JSON object, where binary tensors follow it",
    "schema": {"type": "integer", "minimum": 0},
}
_DOC: dict[str, Any] = {
    "parameters": [{"name": "Inference-Header-Content-Length", "in": "header", **_LENGTH}],
    "requestBody": {
        "required": True,
        "content": {
            bodies.JSON: {"schema": {"$ref": "#/components/schemas/InferenceRequest"}},
            _BINARY: _ANY_BYTES,
        },
    },
}
_ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {"content": {_BINARY: _ANY_BYTES}, "headers": {"Inference-Header-Content-Length": _LENGTH}}
}


@router.post(
    "/models/{model}/versions/{version}/infer",
    response_model=InferenceResponse,
    openapi_extra=_DOC,
    responses=_ANSWERED,
)
async def infer_version(
    request: Request, context: ContextDep, caller: Inferrer, model: str, version: str
) -> Response:
    """Runs one inference on one version, within its timeout, or rejects it."""
    return await _infer(request, context, caller, model, version)


@router.post(
    "/models/{model}/infer",
    response_model=InferenceResponse,
    openapi_extra=_DOC,
    responses=_ANSWERED,
)
async def infer(request: Request, context: ContextDep, caller: Inferrer, model: str) -> Response:
    """Runs one inference on the newest version that a worker is ready for, within its timeout, or
    rejects it."""
    return await _infer(request, context, caller, model, "")


def route_of(path: str) -> str:
    """Returns the route template of a path that inference is posted to; "" for any other."""
    if not (found := _PATH.fullmatch(path)):
        return ""
    version = "/versions/{version}" if found[2] else ""
    return f"/v2/models/{{model}}{version}/infer"


async def serve(scope: Scope, receive: Receive, send: Send, context: Context) -> None:
    """Serves a request on the fast path, without FastAPI: see `route_of`."""
    request = Request(scope, receive)
    id = request_id(scope)
    try:
        model, version = _PATH.fullmatch(scope["path"]).groups("")  # type: ignore[union-attr]
        caller = await authorize(request, context, "infer")
        response = await _infer(request, context, caller, model, version)
        response.raw_headers.append((b"x-request-id", id.encode()))
    except Exception as error:
        response = error_response(error, id, scope["path"])
    await response(scope, receive, send)


async def _infer(
    request: Request, context: Context, caller: Caller, name: str, version: str
) -> Response:
    since_s = clock.monotonic()
    versions = signatures.models_of(context.models, name, version)
    model = await context.gateway.model_statuses.choose(versions)
    signature = signatures.call_signature(model)
    body = await _body(request, model.max_line_bytes)
    head = wire.header_length(request.headers.get(wire.HEADER), body)
    if wire.is_slow_to_read(body, head, signature):
        inference = await run_in_threadpool(wire.read, body, head, signature)
    else:
        inference = wire.read(body, head, signature)
    with watch_disconnect(request) as client_disconnected:
        session = InferenceSession(
            gateway=context.gateway,
            call_log=context.call_log,
            models=context.models,
            caller=caller,
            job_class=inference.job_class,
            timeout_ms=inference.timeout_ms,
            since_s=since_s,
            client_disconnected=client_disconnected,
        )
        answer = _call_with_texts if signatures.takes_texts(model) else _call_with_tensors
        result, outputs, more = await answer(session, model, inference)
    total_ms = round((clock.monotonic() - since_s) * 1000, 3)
    about = {
        "model_name": result.plan.model.name,
        "model_version": result.plan.model.version,
        "id": inference.id or result.id,
        "parameters": {**more, **result.plan.degraded, "total_ms": total_ms},
    }
    return _response(
        request, *wire.write(about, outputs, inference.outputs), session.rate_limit_headers
    )


async def _body(request: Request, max_bytes: int) -> bytes:
    raw = await bodies.read_all(request, max_bytes)
    if encoding := request.headers.get("content-encoding"):
        return await run_in_threadpool(compression.decompress, raw, encoding, max_bytes)
    return raw


#: First call's result, outputs, and more response parameters.
_Outputs = tuple[CallResult, Mapping[str, Tensor], Mapping[str, Any]]


async def _call_with_tensors(
    session: InferenceSession, model: Model, inference: Inference
) -> _Outputs:
    """Makes one call of all rows."""
    inputs = {name: tensor.as_json() for name, tensor in inference.inputs.items()}
    size, most = sum(len(entry["base64"]) for entry in inputs.values()), model.limits.max_item_bytes
    if size > most:
        raise TooLarge(f"the inputs have {size} bytes in base64; {model.key} takes {most}")
    value = {"inputs": inputs, "outputs": [want.name for want in inference.outputs]}
    result = await session.call(value, fallback_plans(session.models, model, value, {}))
    outputs = {name: tensors.output(found) for name, found in result.output.items()}
    return result, outputs, result.timing


async def _call_with_texts(
    session: InferenceSession, model: Model, inference: Inference
) -> _Outputs:
    """Makes a call of each text. They share launches, and one model answers them all."""
    texts = signatures.decoded_texts(inference.inputs[signatures.TEXT])
    for text in texts:
        if isinstance(faults := validation.check(text, (), None, model, True), list):
            raise Malformed("; ".join(fault.message for fault in faults))
    if len(texts) > 1:
        found = await fan_out(session, model, texts, {})
    else:
        found = [await session.call(texts[0], fallback_plans(session.models, model, texts[0], {}))]
    return found[0], signatures.joined_outputs(model, [result.output for result in found]), {}


def _response(request: Request, body: bytes, head: int | None, headers: dict[str, str]) -> Response:
    media_type = bodies.JSON
    if head is not None:
        media_type, headers[wire.HEADER] = _BINARY, str(head)
    body, encoding = compression.compress(body, request.headers.get("accept-encoding", ""))
    if encoding:
        headers |= {"Content-Encoding": encoding, "Vary": "Accept-Encoding"}
    return Response(body, headers=headers, media_type=media_type)
