"""POST /v2/models/{model}/infer, on the fast path and on the terms of POST /infer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from api.compat.oip import signatures, wire
from api.compat.oip.schemas import ERRORS, InferenceResponse
from api.compat.oip.wire import Inference, Wanted
from api.context import Context, ContextDep
from api.dependencies import Inferrer
from api.gateway.fallbacks import fallback_plans, plan_of
from api.gateway.fan_out import fan_out
from api.gateway.inference import CallResult, InferenceSession
from api.gateway.prepared import PreparedInputs
from api.gateway.routing.target import Target
from api.http import bodies, compression
from api.http.connections.connection import arrived_s
from api.services.call_preparation import end_after
from jobs import clock
from jobs.errors import Malformed, TooLarge
from jobs.identity import Caller
from jobs.intake import validation
from jobs.models.inputs import tensors
from jobs.models.model import Model
from jobs.models.registry import Registry

router = APIRouter(prefix="/v2", tags=["open inference protocol"], responses=ERRORS)

LIGHT_TEXT_BYTES = 8192  #: Bytes of a body whose texts may be tokenized beside other requests.
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
    return await answer(request, context, caller)


@router.post(
    "/models/{model}/infer",
    response_model=InferenceResponse,
    openapi_extra=_DOC,
    responses=_ANSWERED,
)
async def infer(request: Request, context: ContextDep, caller: Inferrer, model: str) -> Response:
    """Runs one inference on the newest version that a worker is ready for, within its timeout, or
    rejects it."""
    return await answer(request, context, caller)


def route_of(path: str) -> str:
    """Returns the route template of a path that inference is posted to; "" for any other."""
    if not (match := _PATH.fullmatch(path)):
        return ""
    version = "/versions/{version}" if match[2] else ""
    return f"/v2/models/{{model}}{version}/infer"


async def answer(request: Request, context: Context, caller: Caller) -> Response:
    """Runs one inference on the model, and the version, that the path names."""
    name, version = _PATH.fullmatch(request.scope["path"]).groups("")  # type: ignore[union-attr]
    models = context.models_of(caller.tenant)
    signatures.models_of(models, name, version)  # raises where there is no such version
    named = f"{name}@{version}" if version else name
    target = await context.router.route(models, named, request, caller.tenant)
    model = target.model
    signatures.call_signature(model)  # raises where this protocol can't call it
    bodies.expand(request)
    body = await context.call_bodies.read(request, model.max_line_bytes, caller.tenant)
    since_s = arrived_s(request.scope)
    head = wire.header_length(request.headers.get(wire.HEADER), body)
    light_bytes = LIGHT_TEXT_BYTES if signatures.takes_texts(model) else bodies.LIGHT_BYTES
    if bodies.is_heavy(body, light_bytes):
        tenant, preparation = caller.tenant, context.call_preparation
        inference, inputs = await preparation.run(request, tenant, prepare, target, body, head)
    else:
        inference, inputs = prepare(models, target, body, head)
    terms = inference.job_class, inference.timeout_ms, since_s
    with context.inference_session(request, caller, *terms, {}) as session:
        results = await _call_all(session, inputs)
    first, outputs = results[0], [result.output for result in results]
    more = {} if signatures.takes_texts(model) else first.timing
    total_ms = round((clock.monotonic() - since_s) * 1000, 3)
    about = {
        "model_name": first.plan.model.name,
        "model_version": first.plan.model.version,
        "id": inference.id or first.id,
        "parameters": {**more, **first.plan.degraded, "total_ms": total_ms},
    }
    parts = model, about, outputs, inference.outputs, request.headers.get("accept-encoding", "")
    if sum(map(len, outputs)) > bodies.LIGHT_BYTES:
        content, headers = await context.call_preparation.run(
            request, caller.tenant, write_response, *parts
        )
    else:
        content, headers = write_response(context.models, *parts)
    return Response(content, headers={**session.response_headers, **headers})


def prepare(
    models: Registry, target: Target, body: bytes, head: int
) -> tuple[Inference, PreparedInputs]:
    """Parses a body for a version, checks and sizes its inputs. Returns the rest of it too, without
    tensors. Raises Malformed, TooLarge."""
    model = target.model
    inference = wire.read(body, head, signatures.call_signature(model))
    end_after(inference.timeout_ms)
    inputs = _texts if signatures.takes_texts(model) else _tensors
    return replace(inference, inputs={}), inputs(models, target, inference)


def _tensors(models: Registry, target: Target, inference: Inference) -> PreparedInputs:
    """Prepares one call of all rows."""
    model = target.model
    inputs = {name: tensor.as_json() for name, tensor in inference.inputs.items()}
    size, most = sum(len(entry["base64"]) for entry in inputs.values()), model.limits.max_item_bytes
    if size > most:
        raise TooLarge(f"the inputs have {size} bytes in base64; {model.key} takes {most}")
    value = {"inputs": inputs, "outputs": [want.name for want in inference.outputs]}
    plans = tuple(fallback_plans(models, target, value, {}))
    return PreparedInputs(target, (orjson.dumps(value),), plans)


def _texts(models: Registry, target: Target, inference: Inference) -> PreparedInputs:
    """Prepares a call of each text. They share launches, and one model answers them all."""
    model = target.model
    texts = signatures.decoded_texts(inference.inputs)
    [name], values = inference.inputs, []
    for n, text in enumerate(texts):
        item = validation.check(text, (), None, model, True)
        if isinstance(item, list):
            wrong = "; ".join(fault.message for fault in item)
            wrong = validation.NUL if "\0" in text else wrong
            raise Malformed(f"{name}: element {n}: {wrong}")
        values.append(item.input)
    if len(texts) == 1:
        plans = tuple(fallback_plans(models, target, texts[0], {}))
    else:
        plans = tuple(plan_of(target, text, {}) for text in texts)
    return PreparedInputs(target, values, plans)


async def _call_all(session: InferenceSession, inputs: PreparedInputs) -> Sequence[CallResult]:
    """Makes a call of each text, or one of all tensors."""
    if len(inputs.values) > 1:
        return await fan_out(session, inputs)
    return [await session.call(orjson.Fragment(inputs.values[0]), iter(inputs.plans))]


def write_response(
    models: Registry,
    model: Model,
    about: Mapping[str, Any],
    outputs: Sequence[bytes],
    wanted: Sequence[Wanted],
    accept_encoding: str,
) -> tuple[bytes, dict[str, str]]:
    """Reads the outputs of a model's calls. Returns the body of the response, and its headers.

    about: its fields beside the outputs. Large ones are read in a child process. Raises Malformed
    where JSON can't represent an output.
    """
    if signatures.takes_texts(model):
        joined = signatures.joined_outputs(model, outputs)
    else:
        joined = {
            name: tensors.output(value)
            for output in outputs
            for name, value in orjson.loads(output).items()
        }
    body, head = wire.write(about, joined, wanted)
    headers = {"Content-Type": bodies.JSON}
    if head is not None:
        headers = {"Content-Type": _BINARY, wire.HEADER: str(head)}
    body, encoding = compression.compress(body, accept_encoding)
    if encoding:
        headers |= {"Content-Encoding": encoding, "Vary": "Accept-Encoding"}
    return body, headers
