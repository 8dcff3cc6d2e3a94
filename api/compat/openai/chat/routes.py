"""POST /v1/chat/completions and /v1/completions, on the fast path like POST /infer."""

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response

from api.compat.generation import answering
from api.compat.generation.answering import Answer, GenerationApi
from api.compat.generation.preparation import GenerationBody, read_body, refused
from api.compat.openai.chat.answers import chat_completion, text_completion
from api.compat.openai.chat.chunks import ChatChunks, TextChunks
from api.compat.openai.chat.schemas import (
    CHAT_EVENTS,
    TEXT_EVENTS,
    ChatCompletion,
    TextCompletion,
)
from api.compat.openai.schemas import ERRORS
from api.context import ContextDep
from api.dependencies import Inferrer
from api.gateway.inference import CallResult
from api.gateway.streaming.event_stream import MEDIA_TYPE
from api.gateway.streaming.resuming import stream_doc
from api.http import idempotency
from jobs.models.inputs.conversation import has_several

router = APIRouter(tags=["openai"])
CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"
INVOKED_PATH = "/invocations"
BATCHED_PATH = f"{CHAT_PATH}/batch"


def read_chat(value: Any) -> GenerationBody:
    """Reads the body of a chat completion. Raises Invalid."""
    return _with("messages", read_body(value))


def read_completion(value: Any) -> GenerationBody:
    """Reads the body of a completion. Raises Invalid."""
    return _with("prompt", read_body(value))


def read_invocation(value: Any) -> GenerationBody:
    """Reads the body of either. Raises Invalid."""
    body = read_body(value)
    return body if "prompt" in body.input else _with("messages", body)


def read_batched(value: Any) -> GenerationBody:
    """Reads the body of chat completions of several conversations. Raises Invalid."""
    conversations = value.get("messages") if isinstance(value, dict) else None
    if conversations is not None and not has_several(conversations):
        wanted = "messages must be a list of conversations, each a list of messages"
        raise refused("messages", "type", wanted)
    body = read_body({**value, "messages": None} if conversations else value)
    if body.stream:
        wanted = "stream must be false: the answers come together; chat completions stream"
        raise refused("stream", "invalid_value", wanted)
    value = {**body.input, "messages": conversations} if conversations else body.input
    return _with("messages", replace(body, input=value))


def _with(field: str, body: GenerationBody) -> GenerationBody:
    if field not in body.input:
        raise refused(field, "missing", f"{field} is missing")
    return body


def _whole(answer: Answer, result: CallResult) -> dict[str, Any]:
    return (chat_completion if answer.prepared.is_chat else text_completion)(answer, result)


def _chunks(answer: Answer) -> ChatChunks | TextChunks:
    return (ChatChunks if answer.prepared.is_chat else TextChunks)(answer)


_CHAT = GenerationApi(CHAT_PATH, read_chat, chat_completion, ChatChunks)
_BATCHED = GenerationApi(BATCHED_PATH, read_batched, chat_completion, ChatChunks)
_TEXT = GenerationApi(TEXT_PATH, read_completion, text_completion, TextChunks)
_INVOKED = GenerationApi(INVOKED_PATH, read_invocation, _whole, _chunks)


def _responses(events: str) -> dict[int | str, dict[str, Any]]:
    stream = {"schema": {"type": "string"}, "example": events}
    return {200: {**idempotency.REPLAY_HEADER_DOC, "content": {MEDIA_TYPE: stream}}, **ERRORS}


@router.post(
    CHAT_PATH,
    response_model=ChatCompletion,
    openapi_extra=stream_doc(idempotency.request_doc("ChatCompletionRequest")),
    responses=_responses(CHAT_EVENTS),
)
async def create_chat_completion(
    request: Request, context: ContextDep, caller: Inferrer
) -> Response:
    """Returns the model's next message in a conversation, as OpenAI's API does: whole, or with
    `stream` as server-sent events."""
    return await answering.answer(request, context, caller, _CHAT)


@router.post(
    BATCHED_PATH,
    response_model=ChatCompletion,
    openapi_extra=idempotency.request_doc("BatchedChatRequest"),
    responses={200: idempotency.REPLAY_HEADER_DOC, **ERRORS},
)
async def create_batched_chat(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the model's next message in each of several conversations, as choices of one answer:
    vLLM's route."""
    return await answering.answer(request, context, caller, _BATCHED)


@router.post(
    TEXT_PATH,
    response_model=TextCompletion,
    openapi_extra=stream_doc(idempotency.request_doc("CompletionRequest")),
    responses=_responses(TEXT_EVENTS),
)
async def create_completion(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the text that follows a prompt, as OpenAI's API does: whole, or with `stream` as
    server-sent events."""
    return await answering.answer(request, context, caller, _TEXT)


@router.post(
    INVOKED_PATH,
    response_model=ChatCompletion | TextCompletion,
    openapi_extra=stream_doc(idempotency.request_doc("ChatCompletionRequest")),
    responses=_responses(CHAT_EVENTS),
)
async def invoke(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Answers a chat completion, or a completion where the body has a prompt: SageMaker's route,
    which vLLM serves too."""
    return await answering.answer(request, context, caller, _INVOKED)
