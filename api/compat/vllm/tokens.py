"""POST /tokenize and /detokenize, as vLLM has them, on the fast path like POST /infer.

The model's worker answers, by calls that generate nothing and that nobody pays for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from api.compat.generation import answering
from api.compat.generation.preparation import GenerationBody, read_body, refused
from api.compat.openai.schemas import ERRORS
from api.compat.vllm.token_schemas import MOST_DETOKENIZED, DetokenizeResponse, TokenizeResponse
from api.context import Context, ContextDep
from api.dependencies import Inferrer
from api.http import idempotency
from api.http.responses import json_response
from jobs.calls.messages import Told
from jobs.errors import Fault, Invalid, Unavailable
from jobs.identity import Caller
from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.request_fields import table
from jobs.models.inputs.request_fields.row import Route

router = APIRouter(tags=["openai"], responses=ERRORS)
TOKENIZE_PATH, DETOKENIZE_PATH = "/tokenize", "/detokenize"
_STRS = "return_token_strs"
_TOO_MANY = f"tokens must be a list of at most {MOST_DETOKENIZED:,} token ids: send them in parts"


@dataclass(frozen=True, slots=True)
class TokensBody(GenerationBody):
    """Body of a request that generates nothing."""

    told: Told = "tokens"


def read_tokenize(value: Any) -> TokensBody:
    """Reads the body of a request for tokens. Raises Invalid."""
    fields = _checked("tokenize", value)
    prompt = fields.get("prompt")
    if not isinstance(prompt, str | None):
        raise refused("prompt", "type", "prompt must be a text")
    if prompt is None and fields.get("messages") is None:
        raise refused("prompt", "missing", "prompt is missing: send prompt or messages")
    try:
        told: Told = "token_strs" if Fields(value).flag(_STRS) else "tokens"
    except FieldError as error:
        raise refused(_STRS, "type", str(error)) from None
    return _body({name: part for name, part in fields.items() if name != _STRS}, told)


def read_detokenize(value: Any) -> TokensBody:
    """Reads the body of a request for the text of tokens. Raises Invalid."""
    fields = _checked("detokenize", value)
    tokens = fields.pop("tokens", None)
    if not isinstance(tokens, list) or not tokens:
        raise refused("tokens", "type", "tokens must be a list of token ids that is not empty")
    if len(tokens) > MOST_DETOKENIZED:
        raise refused("tokens", "too_long", _TOO_MANY)
    for place, token in enumerate(tokens):
        if type(token) is not int or token < 0:
            message = f"tokens[{place}] must be a whole number of at least 0"
            raise Invalid(message, faults=[Fault(("tokens", place), "range", message)])
    return _body({**fields, "prompt": tokens}, "text")


def _checked(route: Route, value: Any) -> dict[str, Any]:
    """Returns the fields of a body, all of which the route has, without those that are null."""
    if not isinstance(value, dict):
        raise refused("body", "type", "the body must be an object")
    try:
        table.check(route, value, of_call=True)
    except FieldError as error:
        raise refused(error.field, "invalid_value", str(error)) from None
    return {name: part for name, part in value.items() if part is not None}


def _body(fields: Mapping[str, Any], told: Told) -> TokensBody:
    body = read_body(fields)
    return TokensBody(
        body.model, body.input, False, False, body.timeout_ms, body.deadlines, told=told
    )


@router.post(
    TOKENIZE_PATH,
    response_model=TokenizeResponse,
    openapi_extra=idempotency.body_doc("TokenizeRequest"),
)
async def tokenize(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the tokens of a text or of a conversation, as the model's worker, or its server,
    makes them; also of one that is longer than the model takes, up to 64 characters for each
    token that it takes."""
    found = await _told(request, context, caller, read_tokenize)
    tokens = found["tokens"]
    return json_response(
        {
            "count": len(tokens),
            "max_model_len": found["max_model_len"],
            "tokens": tokens,
            "token_strs": found.get("token_strs"),
        }
    )


@router.post(
    DETOKENIZE_PATH,
    response_model=DetokenizeResponse,
    openapi_extra=idempotency.body_doc("DetokenizeRequest"),
)
async def detokenize(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the text of tokens of a model, special ones included."""
    found = await _told(request, context, caller, read_detokenize)
    return json_response({"prompt": found["prompt"]})


async def _told(request: Request, context: Context, caller: Caller, read: Any) -> dict[str, Any]:
    raw = await answering.read_raw(request, context, caller)
    prepared = await answering.prepare(request, context, caller, read, raw)
    model = prepared.model
    if not model.spec.generates:
        message = f"{model.key} tells no tokens: its server doesn't stream, or it is a Python file"
        raise refused("model", "model_not_supported", message)
    body = prepared.body
    assert isinstance(body, TokensBody)
    found = await answering.ask_tokenizer(request, context, caller, prepared, body.told)
    if found.keys().isdisjoint(("tokens", "prompt")):
        raise Unavailable(f"the worker of {model.key} is of an earlier release: it tells no tokens")
    return found
