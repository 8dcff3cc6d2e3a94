"""POST /v2/models/{model}/infer: lean, as POST /infer is, and with the same terms."""

import re
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from api.compat.oip import signatures, wire
from api.compat.oip.schemas import InferenceAnswer
from api.compat.oip.wire import Inference
from api.context import Context, Shared
from api.dependencies import Inferrer, may
from api.gateway.fallbacks import fallback_plans
from api.gateway.fan_out import fan_out
from api.gateway.inference import CallResult, InferenceSession, watched
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
    200: {
        "content": {_BINARY: _ANY_BYTES},
        "headers": {"Inference-Header-Content-Length": _LENGTH},
    }
}


@router.post(
    "/models/{model}/versions/{version}/infer",
    response_model=InferenceAnswer,
    openapi_extra=_DOC,
    responses=_ANSWERED,
)
async def infer_version(
    request: Request, shared: Shared, caller: Inferrer, model: str, version: str
) -> Response:
    """One request of one version, answered within its timeout or refused."""
    return await _infer(request, shared, caller, model, version)


@router.post(
    "/models/{model}/infer",
    response_model=InferenceAnswer,
    openapi_extra=_DOC,
    responses=_ANSWERED,
)
async def infer(request: Request, shared: Shared, caller: Inferrer, model: str) -> Response:
    """The same, of the newest version that a worker is ready for."""
    return await _infer(request, shared, caller, model, "")


def route_of(path: str) -> str:
    """The template of a path that calls are posted to; "" of any other."""
    if not (found := _PATH.fullmatch(path)):
        return ""
    version = "/versions/{version}" if found[2] else ""
    return f"/v2/models/{{model}}{version}/infer"


async def serve(scope: Scope, receive: Receive, send: Send, shared: Context) -> None:
    """The same, for who comes without FastAPI: see `route_of`."""
    request = Request(scope, receive)
    id = request_id(scope)
    try:
        model, version = _PATH.fullmatch(scope["path"]).groups("")  # type: ignore[union-attr]
        caller = await may(request, shared, "infer")
        response = await _infer(request, shared, caller, model, version)
        response.raw_headers.append((b"x-request-id", id.encode()))
    except Exception as error:
        response = error_response(error, id, scope["path"])
    await response(scope, receive, send)


async def _infer(
    request: Request, shared: Context, caller: Caller, name: str, version: str
) -> Response:
    since_s = clock.monotonic()
    versions = signatures.models_of(shared.models, name, version)
    model = await shared.calls.pools.choose(versions)
    takes = signatures.asked(model)
    body = await _body(request, model.max_line_bytes)
    head = wire.header_length(request.headers.get(wire.HEADER), body)
    if wire.takes_long(body, head, takes):
        asked = await run_in_threadpool(wire.read, body, head, takes)
    else:
        asked = wire.read(body, head, takes)
    with watched(request) as gone:
        terms = asked.job_class, asked.timeout_ms, since_s, gone
        asking = InferenceSession(shared.calls, shared.records, shared.models, caller, *terms)
        answer = _of_texts if signatures.of_texts(model) else _of_tensors
        called, outputs, more = await answer(asking, model, asked)
    total_ms = round((clock.monotonic() - since_s) * 1000, 3)
    about = {
        "model_name": called.way.model.name,
        "model_version": called.way.model.version,
        "id": asked.id or called.id,
        "parameters": {**more, **called.way.degraded, "total_ms": total_ms},
    }
    return _response(request, *wire.write(about, outputs, asked.outputs), asking.rate_limit_headers)


async def _body(request: Request, most_bytes: int) -> bytes:
    raw = await bodies.whole(request, most_bytes)
    if encoding := request.headers.get("content-encoding"):
        return await run_in_threadpool(compression.expanded, raw, encoding, most_bytes)
    return raw


_Answered = tuple[CallResult, Mapping[str, Tensor], Mapping[str, Any]]
"""A call, the outputs of all, and what else there is to say."""


async def _of_tensors(asking: InferenceSession, model: Model, asked: Inference) -> _Answered:
    """All rows are one call."""
    inputs = {name: tensor.as_json() for name, tensor in asked.inputs.items()}
    size, most = sum(len(entry["base64"]) for entry in inputs.values()), model.limits.max_item_bytes
    if size > most:
        raise TooLarge(f"the inputs have {size} bytes in base64; {model.key} takes {most}")
    value = {"inputs": inputs, "outputs": [want.name for want in asked.outputs]}
    called = await asking.call(value, fallback_plans(asking.models, model, value, {}))
    outputs = {name: tensors.output(found) for name, found in called.output.items()}
    return called, outputs, called.timing


async def _of_texts(asking: InferenceSession, model: Model, asked: Inference) -> _Answered:
    """Each text is a call; they share launches. All are answered by one model."""
    texts = signatures.texts(asked.inputs[signatures.TEXT])
    for text in texts:
        if isinstance(faults := validation.check(text, (), None, model, True), list):
            raise Malformed("; ".join(fault.message for fault in faults))
    if len(texts) > 1:
        found = await fan_out(asking, model, texts, {})
    else:
        found = [await asking.call(texts[0], fallback_plans(asking.models, model, texts[0], {}))]
    return found[0], signatures.together(model, [called.output for called in found]), {}


def _response(request: Request, body: bytes, head: int | None, headers: dict[str, str]) -> Response:
    media_type = bodies.JSON
    if head is not None:
        media_type, headers[wire.HEADER] = _BINARY, str(head)
    body, encoding = compression.compressed(body, request.headers.get("accept-encoding", ""))
    if encoding:
        headers |= {"Content-Encoding": encoding, "Vary": "Accept-Encoding"}
    return Response(body, headers=headers, media_type=media_type)
