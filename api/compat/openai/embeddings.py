"""POST /v1/embeddings, on the fast path and on the terms of POST /infer."""

import asyncio
import base64
import struct
from collections.abc import Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from api.compat.openai.embedding_schemas import EmbeddingsRequest, EmbeddingsResponse
from api.compat.openai.schemas import ERRORS
from api.context import ContextDep
from api.dependencies import Inferrer
from api.gateway.fallbacks import fallback_plans
from api.gateway.fan_out import fan_out
from api.gateway.inference import CallResult, InferenceSession
from api.http import bodies, idempotency
from api.http.errors import validated
from jobs import clock
from jobs.errors import Fault, Invalid, MillraceError
from jobs.intake import validation
from jobs.models.model import Model
from jobs.models.registry import Registry

router = APIRouter(tags=["openai"])
PATH = "/v1/embeddings"

MAX_BODY_BYTES = 4 << 20  #: Bound of a body, unless one text of some model may be longer.
EACH_MS = 50  #: Growth of the default timeout with each further input.
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
    since_s = clock.monotonic()
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, context.settings.require_idempotency_key)
    raw = await bodies.read_all(request, max(context.models.max_line_bytes, MAX_BODY_BYTES))
    body = validated(EmbeddingsRequest, validation.parse_json(raw))
    model = await context.gateway.model_statuses.choose(context.models.versions(body.model))
    inputs = _inputs(model, body)
    timeout_ms = body.timeout_ms or 10_000 + EACH_MS * (len(inputs) - 1)
    rate_limit_headers: dict[str, str] = {}

    async def answer() -> bytes:
        with context.inference_session(
            request, caller, "interactive", timeout_ms, since_s, rate_limit_headers
        ) as session:
            results = await _call_all(session, context.models, model, inputs, body)
        return await _answer(model, body, results)

    if key is None:
        return Response(await answer(), headers=rate_limit_headers, media_type=bodies.JSON)
    upload = idempotency.Upload(request, caller.tenant, key)
    upload.add(PATH.encode() + raw)  # the same body means something else to /infer
    content, replayed = await context.response_cache.once(upload.finish(), timeout_ms, answer)
    headers = idempotency.REPLAYED if replayed else rate_limit_headers
    return Response(content, headers=headers, media_type=bodies.JSON)


def _inputs(model: Model, body: EmbeddingsRequest) -> Sequence[Any]:
    """Returns the inputs, all validated. Raises Invalid."""
    if model.effective_task != "embedding":
        raise _refused("model", "model_not_supported", f"{model.key} makes no embeddings")
    if body.dimensions and (error := validation.refuse_params(model, _params(body))):
        raise _refused("dimensions", *error)
    if not isinstance(body.input, str | list):
        raise _refused("input", "type", "the input is a text, its token ids, or a list of either")
    if error := validation.refuse_input(model, body.input):
        raise _refused("input", *error)
    inputs = model.split_inputs(body.input) or [body.input]
    for n, value in enumerate(inputs):
        item = validation.check(value, (), None, model, False)
        if isinstance(item, list):
            which = f"input {n} of the list: " if inputs is body.input else ""
            raise _refused("input", item[0].code, which + item[0].message)
    return inputs


def _refused(where: str, code: str, message: str) -> Invalid:
    return Invalid(message, faults=[Fault((where,), code, message)])


def _params(body: EmbeddingsRequest) -> dict[str, Any]:
    return {"dimensions": body.dimensions} if body.dimensions else {}


async def _call_all(
    session: InferenceSession,
    models: Registry,
    model: Model,
    inputs: Sequence[Any],
    body: EmbeddingsRequest,
) -> Sequence[CallResult]:
    params = _params(body)
    if len(inputs) > 1:
        return await fan_out(session, model, inputs, params)
    plans = fallback_plans(models, model, inputs[0], params)
    return [await session.call(inputs[0], plans)]


async def _answer(model: Model, body: EmbeddingsRequest, results: Sequence[CallResult]) -> bytes:
    encode = _base64 if body.encoding_format == "base64" else orjson.dumps
    data = []
    for index, result in enumerate(results):
        vector = orjson.Fragment(encode(result.output))
        data.append({"object": "embedding", "index": index, "embedding": vector})
        if index % _YIELD_EVERY == _YIELD_EVERY - 1:
            await asyncio.sleep(0)
    plan = results[0].plan
    counted = plan.model.spec.unit == "tokens"
    tokens = sum(result.units for result in results) if counted else 0
    response: dict[str, Any] = {
        "object": "list",
        "data": data,
        "model": body.model if plan.model is model else plan.model.key,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    if plan.degraded:
        response["degraded"] = plan.degraded
    return orjson.dumps(response)


def _base64(vector: list[float]) -> bytes:
    """Encodes 32-bit floats, little-endian, as a JSON string."""
    try:
        return b'"%b"' % base64.b64encode(struct.pack(f"<{len(vector)}f", *vector))
    except (struct.error, OverflowError, TypeError) as error:
        raise MillraceError("the model's output is no vector") from error
