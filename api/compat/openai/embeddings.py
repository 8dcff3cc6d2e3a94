"""POST /v1/embeddings, on the fast path and on the terms of POST /infer."""

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from api.compat.openai.embedding_schemas import (
    EmbeddingsRequest,
    EmbeddingsResponse,
    read_embeddings,
)
from api.compat.openai.schemas import ERRORS
from api.context import Context, ContextDep
from api.dependencies import Inferrer
from api.gateway.fallbacks import fallback_plans, plan_of
from api.gateway.fan_out import fan_out
from api.gateway.inference import CallResult, InferenceSession
from api.gateway.prepared import PreparedInputs
from api.gateway.routing.target import ReadyVersions, Target
from api.http import bodies, idempotency
from api.http.connections.connection import arrived_s
from api.http.responses import JsonBytes
from api.services.call_preparation import end_after
from jobs.errors import Fault, Invalid, MillraceError
from jobs.intake import validation
from jobs.models.inputs import embeddings
from jobs.models.inputs.embeddings import refuse_from_openai
from jobs.models.model import Model
from jobs.models.registry import Registry

router = APIRouter(tags=["openai"])
PATH = "/v1/embeddings"

MAX_BODY_BYTES = 4 << 20  #: Bound of a body, unless one text of some model may be longer.
LIGHT_BYTES = 8192  #: Bytes of a body whose texts may be tokenized beside other requests.
EACH_MS = 50  #: Growth of the default timeout with each further input.
_PASSED_ON = "dimensions", "normalize", "truncate_prompt_tokens", "use_activation"
"""Fields that are parameters of the model."""
_YIELD_EVERY = 64  # vectors encoded before others run


@router.post(
    PATH,
    response_model=EmbeddingsResponse,
    openapi_extra=idempotency.request_doc("EmbeddingsRequest"),
    responses={200: idempotency.REPLAY_HEADER_DOC, **ERRORS},
)
async def create_embeddings(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the vectors of one text or of several, as OpenAI's API does. Each text is a call of
    its own; one failure fails the request."""
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, context.settings.require_idempotency_key)
    max_bytes = max(context.models.max_line_bytes, MAX_BODY_BYTES)
    raw = await context.call_bodies.read(request, max_bytes, caller.tenant)
    since_s = arrived_s(request.scope)
    models, router, tenant = context.models_of(caller.tenant), context.router, caller.tenant
    if bodies.is_heavy(raw, LIGHT_BYTES):
        ready = await router.ready_versions(models, request, tenant, key=key)
        body, inputs = await context.call_preparation.run(request, tenant, prepare, raw, ready)
        router.record(inputs.target, ready.asker)
    else:
        body = read_embeddings(validation.parse_call(raw))
        user = body.safety_identifier or body.user
        target = await router.route(models, body.model, request, tenant, key=key, user=user)
        inputs = _inputs(models, target, body)
    timeout_ms = body.timeout_ms or 10_000 + EACH_MS * (len(inputs.values) - 1)
    response_headers: dict[str, str] = {}

    async def answer() -> bytes:
        with context.inference_session(
            request, caller, "interactive", timeout_ms, since_s, response_headers
        ) as session:
            results = await _call_all(session, inputs)
        encode = partial(_encoded, request, context, caller.tenant, body.encoding_format)
        return await _answer(inputs.target.model, body.model, results, encode)

    if key is None:
        return JsonBytes(await answer(), response_headers)
    # The same body means something else to /infer.
    claim = await idempotency.claim_of(request, caller.tenant, key, PATH.encode(), raw)
    content, replayed = await context.response_cache.once(claim, timeout_ms, answer)
    headers = idempotency.REPLAYED if replayed else response_headers
    return JsonBytes(content, headers)


def prepare(
    models: Registry, raw: bytes, ready: ReadyVersions
) -> tuple[EmbeddingsRequest, PreparedInputs]:
    """Parses, checks and sizes the inputs of a body, in a child process. Returns the rest of it
    too."""
    body = read_embeddings(validation.parse_call(raw))
    if body.timeout_ms:
        end_after(body.timeout_ms)
    target = ready.target(models, body.model, body.safety_identifier or body.user)
    inputs = _inputs(models, target, body)
    return body.model_copy(update={"input": None}), inputs


def _inputs(models: Registry, target: Target, body: EmbeddingsRequest) -> PreparedInputs:
    """Returns the inputs, all validated and sized. Raises Invalid."""
    model = target.model
    if model.effective_task != "embedding":
        raise _refused("model", "model_not_supported", f"{model.key} makes no embeddings")
    params = _params(model, body)
    values = _values(model, body)
    checked = []
    for n, value in enumerate(values):
        item = validation.check(value, (), None, model, False)
        if isinstance(item, list):
            which = f"input {n} of the list: " if values is body.input else ""
            raise _refused("input", item[0].code, which + item[0].message)
        checked.append(item.input)
    if len(values) == 1:
        plans = [*fallback_plans(models, target, values[0], params)]
    else:
        plans = [plan_of(target, value, params) for value in values]
    return PreparedInputs(target, checked, plans)


def _values(model: Model, body: EmbeddingsRequest) -> Sequence[Any]:
    if not isinstance(body.input, str | list):
        raise _refused("input", "type", "the input is a text, its token ids, or a list of either")
    error = validation.refuse_input(model, body.input) or refuse_from_openai(
        body.input, accepts_token_ids=model.accept_token_ids
    )
    if error:
        raise _refused("input", *error)
    return model.split_inputs(body.input) or [body.input]


def _refused(where: str, code: str, message: str) -> Invalid:
    return Invalid(message, faults=[Fault((where,), code, message)])


def _params(model: Model, body: EmbeddingsRequest) -> dict[str, Any]:
    """Returns the model's own parameters. Raises Invalid, which names the field."""
    params = {}
    for field in _PASSED_ON:
        if (asked := getattr(body, field)) is None:
            continue
        name, value = embeddings.param_of(field, asked, model.params)
        if error := validation.refuse_params(model, {name: value}):
            raise _refused(field, *error)
        params[name] = value
    return params


async def _call_all(session: InferenceSession, inputs: PreparedInputs) -> Sequence[CallResult]:
    if len(inputs.values) > 1:
        return await fan_out(session, inputs)
    return [await session.call(orjson.Fragment(inputs.values[0]), iter(inputs.plans))]


async def _answer(
    model: Model,
    name: str,
    results: Sequence[CallResult],
    encode: Callable[[bytes], Awaitable[bytes]],
) -> bytes:
    data = []
    for index, result in enumerate(results):
        vector = orjson.Fragment(await encode(result.output))
        data.append({"object": "embedding", "index": index, "embedding": vector})
        if index % _YIELD_EVERY == _YIELD_EVERY - 1:
            await asyncio.sleep(0)
    plan = results[0].plan
    counted = plan.model.spec.unit == "tokens"
    tokens = sum(result.units for result in results) if counted else 0
    response: dict[str, Any] = {
        "object": "list",
        "data": data,
        "model": name if plan.model == model else plan.model.key,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    if truncated := sum(result.truncated for result in results):
        response["usage"]["truncated"] = truncated
    if plan.degraded:
        response["degraded"] = plan.degraded
    return orjson.dumps(response)


async def _encoded(
    request: Request, context: Context, tenant: str, format: str | None, output: bytes
) -> bytes:
    """Returns a vector in the requested format; parses a large one in a child process."""
    if format != "base64":
        return output
    if len(output) > bodies.LIGHT_BYTES:
        return await context.call_preparation.run(request, tenant, encode_base64, output)
    return encode_base64(context.models, output)


def encode_base64(models: Registry, output: bytes) -> bytes:
    """Returns a vector, of 32-bit floats, little-endian, as a JSON string. Raises MillraceError
    where the output is no vector."""
    vector = orjson.loads(output)
    try:
        return b'"%b"' % base64.b64encode(struct.pack(f"<{len(vector)}f", *vector))
    except (struct.error, OverflowError, TypeError) as error:
        raise MillraceError("the model's output is no vector") from error
