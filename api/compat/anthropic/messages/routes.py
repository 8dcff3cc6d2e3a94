"""POST /v1/messages and /v1/messages/count_tokens, on the fast path like POST /infer."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response

from api.compat.anthropic.messages.events import MessageEvents, message
from api.compat.anthropic.messages.schemas import EVENTS, CountedTokens, Message
from api.compat.anthropic.rate_limits import anthropic_headers
from api.compat.anthropic.schemas import ERRORS
from api.compat.generation import answering
from api.compat.generation.answering import GenerationApi
from api.compat.generation.preparation import OWN_FIELDS, GenerationBody, read_body, refused
from api.context import ContextDep
from api.dependencies import Inferrer
from api.gateway.streaming.event_stream import MEDIA_TYPE
from api.gateway.streaming.resuming import stream_doc
from api.http import idempotency
from api.http.responses import json_response
from jobs.dialects.messages import input_of
from jobs.errors import Fault, Invalid

router = APIRouter(tags=["anthropic"], responses=ERRORS)
PATH, COUNT_PATH = "/v1/messages", "/v1/messages/count_tokens"
_STREAM = {"schema": {"type": "string"}, "example": EVENTS}
_DOC: dict[int | str, dict[str, Any]] = {
    200: {**idempotency.REPLAY_HEADER_DOC, "content": {MEDIA_TYPE: _STREAM}}
}


def read_message(value: Any) -> GenerationBody:
    """Reads the body of a Messages request. Raises Invalid."""
    if not isinstance(value, dict):
        raise refused("body", "type", "the body must be an object")
    faults: list[Fault] = []

    def fault(code: str, message: str, *where: str | int) -> None:
        faults.append(Fault(where, code, message))

    own = {name: value[name] for name in OWN_FIELDS if name in value}
    params = {name: part for name, part in value.items() if name not in own}
    converted = input_of(params, fault)
    if faults:
        raise Invalid("; ".join(one.message for one in faults), faults=faults)
    metadata = value.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return replace(read_body({**own, **converted}), user=user if isinstance(user, str) else "")


def read_counted(value: Any) -> GenerationBody:
    """Reads the body of a request to count tokens. Raises Invalid."""
    return read_message({**value, "max_tokens": 1} if isinstance(value, dict) else value)


_MESSAGES = GenerationApi(PATH, read_message, message, MessageEvents)


@router.post(
    PATH,
    response_model=Message,
    openapi_extra=stream_doc(idempotency.request_doc("MessageRequest")),
    responses=_DOC,
)
async def create_message(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the model's next message in a conversation, as Anthropic's API does: whole, or with
    `stream` as server-sent events."""
    response = await answering.answer(request, context, caller, _MESSAGES)
    response.headers.update(anthropic_headers(response.headers))
    return response


@router.post(
    COUNT_PATH,
    response_model=CountedTokens,
    openapi_extra=idempotency.body_doc("CountTokensRequest"),
)
async def count_message_tokens(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the tokens of a conversation: counted by the model's worker, as they will be for a
    message; those of another server's model are estimated at four characters a token."""
    raw = await answering.read_raw(request, context, caller)
    counted = await answering.count_tokens(request, context, caller, read_counted, raw)
    return json_response({"input_tokens": counted})
