"""POST /v1/embeddings: lean, as POST /infer is, and on the same terms."""

import asyncio
import base64
import struct
from collections.abc import Sequence
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from api.compat.openai.embedding_schemas import EmbeddingsAnswer, EmbeddingsRequest
from api.compat.openai.schemas import ERRORS
from api.context import Context, Shared
from api.dependencies import Inferrer, may
from api.gateway.fallbacks import fallback_plans
from api.gateway.fan_out import fan_out
from api.gateway.inference import CallResult, InferenceSession, watched
from api.http import bodies, idempotency
from api.http.errors import error_response, faults_of
from api.http.request_id import request_id
from jobs import clock
from jobs.errors import Fault, Invalid, MillraceError
from jobs.intake import validation
from jobs.models.model import Model

router = APIRouter(tags=["openai"])
PATH = "/v1/embeddings"

MOST_BYTES = 4 << 20
"""Of a body, unless one text of some model may have more."""
EACH_MS = 50
"""By which the default timeout grows with each further input."""
_ENCODED_AT_ONCE = 64  # vectors: the loop has others to serve

_DOC: dict[str, Any] = {
    "parameters": [idempotency.PARAMETER],
    "requestBody": {
        "required": True,
        "content": {bodies.JSON: {"schema": {"$ref": "#/components/schemas/EmbeddingsRequest"}}},
    },
}


@router.post(
    PATH,
    response_model=EmbeddingsAnswer,
    openapi_extra=_DOC,
    responses={200: idempotency.REPLAY_DOC, **ERRORS},
)
async def create_embeddings(request: Request, shared: Shared, caller: Inferrer) -> Response:
    """The vectors of a text or of several, as OpenAI's API gives them. Each text is a call of its
    own; where one fails, all do."""
    since_s = clock.monotonic()
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, shared.settings.require_idempotency_key)
    raw = await bodies.whole(request, max(shared.models.max_line_bytes, MOST_BYTES))
    asked = _parse(raw)
    model = await shared.calls.pools.choose(shared.models.versions(asked.model))
    inputs = _inputs(model, asked)
    timeout_ms = asked.timeout_ms or 10_000 + EACH_MS * (len(inputs) - 1)
    standing: dict[str, str] = {}

    async def answer() -> bytes:
        with watched(request) as gone:
            asking = InferenceSession(
                shared.calls,
                shared.records,
                shared.models,
                caller,
                "interactive",
                timeout_ms,
                since_s,
                gone,
                standing,
            )
            called = await _called(asking, model, inputs, asked)
        return await _answer(model, asked, called)

    if key is None:
        return Response(await answer(), headers=standing, media_type=bodies.JSON)
    upload = idempotency.Upload(request, caller.tenant, key)
    upload.add(PATH.encode() + raw)  # the same body means something else to /infer
    body, replayed = await shared.kept.once(upload.finish(), timeout_ms, answer)
    headers = idempotency.REPLAYED if replayed else standing
    return Response(body, headers=headers, media_type=bodies.JSON)


async def serve(scope: Scope, receive: Receive, send: Send, shared: Context) -> None:
    """The same, for who comes without FastAPI."""
    request = Request(scope, receive)
    id = request_id(scope)
    try:
        response = await create_embeddings(request, shared, await may(request, shared, "infer"))
        response.raw_headers.append((b"x-request-id", id.encode()))
    except Exception as error:
        response = error_response(error, id, PATH)
    await response(scope, receive, send)


def _parse(raw: bytes) -> EmbeddingsRequest:
    value: Any = validation.parse_json(raw)
    try:
        return EmbeddingsRequest.model_validate(value)
    except ValidationError as error:
        faults = faults_of(error.errors(include_url=False))
        detail = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        raise Invalid(detail or "not a request", faults=faults) from None


def _inputs(model: Model, asked: EmbeddingsRequest) -> Sequence[Any]:
    """One by one, all of them right. Raises Invalid."""
    if model.effective_task != "embedding":
        raise _refused("model", "model_not_supported", f"{model.key} makes no embeddings")
    if asked.dimensions and (no := validation.refuse_params(model, _params(asked))):
        raise _refused("dimensions", *no)
    if not isinstance(asked.input, str | list):
        raise _refused("input", "type", "the input is a text, its token ids, or a list of either")
    if no := validation.refuse_input(model, asked.input):
        raise _refused("input", *no)
    inputs = model.split_inputs(asked.input) or [asked.input]
    for n, value in enumerate(inputs):
        item = validation.check(value, (), None, model, False)
        if isinstance(item, list):
            which = f"input {n} of the list: " if inputs is asked.input else ""
            raise _refused("input", item[0].code, which + item[0].message)
    return inputs


def _refused(where: str, code: str, message: str) -> Invalid:
    return Invalid(message, faults=[Fault((where,), code, message)])


def _params(asked: EmbeddingsRequest) -> dict[str, Any]:
    return {"dimensions": asked.dimensions} if asked.dimensions else {}


async def _called(
    asking: InferenceSession, model: Model, inputs: Sequence[Any], asked: EmbeddingsRequest
) -> Sequence[CallResult]:
    params = _params(asked)
    if len(inputs) > 1:
        return await fan_out(asking, model, inputs, params)
    found = fallback_plans(asking.models, model, inputs[0], params)
    return [await asking.call(inputs[0], found)]


async def _answer(model: Model, asked: EmbeddingsRequest, called: Sequence[CallResult]) -> bytes:
    encode = _base64 if asked.encoding_format == "base64" else orjson.dumps
    data = []
    for index, one in enumerate(called):
        vector = orjson.Fragment(encode(one.output))
        data.append({"object": "embedding", "index": index, "embedding": vector})
        if index % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
            await asyncio.sleep(0)
    way = called[0].way
    counted = way.model.spec.unit == "tokens"
    tokens = sum(one.units for one in called) if counted else 0
    body: dict[str, Any] = {
        "object": "list",
        "data": data,
        "model": asked.model if way.model is model else way.model.key,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    if way.degraded:
        body["degraded"] = way.degraded
    return orjson.dumps(body)


def _base64(vector: list[float]) -> bytes:
    """32-bit floats, little-endian, as OpenAI's clients read them; a JSON string."""
    try:
        return b'"%b"' % base64.b64encode(struct.pack(f"<{len(vector)}f", *vector))
    except (struct.error, OverflowError, TypeError) as error:
        raise MillraceError("the model's output is no vector") from error
