"""/v1/responses: creation on the fast path like POST /infer, and what is stored."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.compat.generation import answering
from api.compat.generation.answering import Answer
from api.compat.openai.conversations import stored as conversations
from api.compat.openai.files import page_object
from api.compat.openai.responses import background, stored
from api.compat.openai.responses.foreground import ForegroundResponse
from api.compat.openai.responses.requests import ResponseBody, conversation_of, read_response
from api.compat.openai.responses.schemas import (
    EVENTS,
    InputTokens,
    ResponseDeleted,
    ResponseItemList,
    StoredResponse,
)
from api.compat.openai.schemas import ERRORS
from api.context import Context, ContextDep
from api.dependencies import Inferrer, Reader, Submitter, reads_on, require
from api.gateway.streaming.event_stream import MEDIA_TYPE
from api.gateway.streaming.resuming import StreamRequest, stream_doc
from api.http import idempotency
from api.http.authorized_stream import AuthorizedStream
from api.http.connections.connection import arrived_s
from api.http.responses import JsonBytes, json_response
from api.routes.jobs import verbs
from jobs import ids
from jobs.dialects.responses.items import REFERENCE, Item, references_of
from jobs.dialects.responses.objects import PREFIX
from jobs.dialects.responses.requests import Before, renamed
from jobs.errors import Fault, Invalid
from jobs.identity import Caller
from jobs.intake import validation
from jobs.models.inputs.fields import FieldError
from jobs.store.jobs import responses as store

router = APIRouter(tags=["openai"], responses=ERRORS)
PATH, COUNT_PATH = "/v1/responses", "/v1/responses/input_tokens"
_ONE = PATH + "/{response_id}"
_PREVIOUS = "previous_response_id"
_ESCAPED = r"\u005", r"\u006", r"\u007"  # letters and the underscore, which writers don't escape
_REFERRING = tuple(map(str.encode, (_PREVIOUS, REFERENCE, '"conversation"', *_ESCAPED)))
"""Parts of a body that may refer to stored items: one without any of them isn't parsed for it."""
_NO_BUFFERING = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
_STREAM = {"schema": {"type": "string"}, "example": EVENTS}
_EVENTS_DOC: dict[str, Any] = {"content": {MEDIA_TYPE: _STREAM}}
_CREATE_DOC: dict[int | str, dict[str, Any]] = {
    200: {**idempotency.REPLAY_HEADER_DOC, **_EVENTS_DOC}
}

ResponseId = Annotated[str, Path(description="resp_…", max_length=200)]
_Include = Annotated[list[str] | None, Query(description="accepted; nothing is left out without")]


@router.post(
    PATH,
    response_model=StoredResponse,
    openapi_extra=stream_doc(idempotency.request_doc("ResponseRequest")),
    responses=_CREATE_DOC,
)
async def create_response(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the model's next output in a conversation, as OpenAI's API does: whole, with `stream`
    as server-sent events, or with `background` as a job of one item."""
    key, asked = idempotency.read_key(request, required=False), StreamRequest.read(request)
    raw = await answering.read_raw(request, context, caller)
    since_s = arrived_s(request.scope)
    read = partial(read_response, before=await _before(context, caller, raw))
    try:
        prepared = await answering.prepare(request, context, caller, read, raw, key)
    except Invalid as error:
        raise renamed(error) from None
    body = prepared.body
    assert isinstance(body, ResponseBody)
    if body.stream:
        idempotency.refuse_for_stream(key)
    elif key is None and context.settings.require_idempotency_key:
        raise idempotency.missing()
    claim = None
    if key is not None:  # the same body means something else on another route
        claim = await idempotency.claim_of(request, caller.tenant, key, PATH.encode(), raw)
    if body.background:
        require(caller, "submit")
        if body.stream:
            require(caller, "read")
        async with context.submission_turns.place(caller.tenant):
            content, replayed = await run_in_threadpool(
                background.create, context, caller, prepared, claim
            )
        if body.stream:
            return _followed(request, context, caller, orjson.loads(content)["id"], -1)
        headers = idempotency.REPLAYED if replayed else None
        return JsonBytes(content, headers or {})
    call_id = asked.call_id if body.stream else ids.new_shown("call")
    made = Answer(call_id, int(ids.made_at("call", call_id)), prepared)
    response = ForegroundResponse(request, context, caller, made, since_s)
    return await response.stream(asked) if body.stream else await response.whole(claim)


@router.post(
    COUNT_PATH,
    response_model=InputTokens,
    openapi_extra=idempotency.body_doc("ResponseRequest"),
)
async def count_input_tokens(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """Returns the tokens of a request's conversation: counted by the model's worker, as they will
    be for a response; those of another server's model are estimated at four characters a token."""
    raw = await answering.read_raw(request, context, caller)
    read = partial(read_response, before=await _before(context, caller, raw))
    try:
        counted = await answering.count_tokens(request, context, caller, read, raw)
    except Invalid as error:
        raise renamed(error) from None
    return json_response({"object": "response.input_tokens", "input_tokens": counted})


async def _before(context: Context, caller: Caller, raw: bytes) -> Before:
    """Returns the stored items that a request refers to. Raises Invalid."""
    if not any(name in raw for name in _REFERRING):
        return Before()
    value = await run_in_threadpool(validation.parse_json, raw)
    if not isinstance(value, dict):
        return Before()
    previous, named = value.get(_PREVIOUS), references_of(value.get("input"))
    try:
        gone_on_with = conversation_of(value)
    except FieldError as error:
        raise _refused(error.field, str(error)) from None
    if not isinstance(previous, str | None):
        message = f"{_PREVIOUS} must be the id of a response"
        raise Invalid(message, faults=[Fault((_PREVIOUS,), "invalid_type", message)])
    async with context.turns.place(caller.tenant):
        return await run_in_threadpool(
            _stored_before, context, caller.tenant, previous, gone_on_with, named
        )


def _stored_before(
    context: Context, tenant: str, previous: str | None, conversation: str | None, named: set[str]
) -> Before:
    history: Sequence[Item] = ()
    if previous is not None:
        history = stored.conversation(context, tenant, previous)
    elif conversation is not None:
        history = conversations.history(context, tenant, conversation)
    return Before(history, stored.outputs_by_id(context, tenant, named) if named else {})


def _followed(
    request: Request, context: Context, caller: Caller, response_id: str, after: int
) -> Response:
    return AuthorizedStream(
        background.follow(context, caller.tenant, response_id, after),
        reads_on(request, context, caller.tenant),
        headers=_NO_BUFFERING,
        media_type=MEDIA_TYPE,
    )


@router.get(_ONE, response_model=StoredResponse, responses={200: _EVENTS_DOC})
def get_response(
    request: Request,
    context: ContextDep,
    caller: Reader,
    response_id: ResponseId,
    include: _Include = None,
    stream: Annotated[bool, Query(description="of one in the background: its events")] = False,
    starting_after: Annotated[
        int | None, Query(ge=0, description="goes with `stream`: the last event that came")
    ] = None,
    include_obfuscation: Annotated[bool | None, Query(description="has no effect")] = None,
) -> Response:
    """Returns a stored response, as far as it is; with `stream` its events from the beginning, or
    those behind `starting_after`, until it has ended."""
    if starting_after is not None and not stream:
        raise _refused("starting_after", "starting_after goes with stream=true")
    with context.acting(caller.tenant) as tx:
        row = stored.find(tx, caller.tenant, response_id)
        if stream and not row.background:
            raise _refused("stream", "Only a response in the background can be streamed again.")
        if not stream:
            progress = stored.progress_of(context, tx, row, text=False)
            return json_response(stored.shown_object(row, progress))
    after = -1 if starting_after is None else starting_after
    return _followed(request, context, caller, response_id, after)


@router.post(_ONE + "/cancel", response_model=StoredResponse)
def cancel_response(
    request: Request, context: ContextDep, caller: Submitter, response_id: ResponseId
) -> Response:
    """Cancels a response in the background; one that has ended stays as it is."""
    with context.acting(caller.tenant) as tx:
        row = stored.find(tx, caller.tenant, response_id)
    if not row.background:
        raise _refused("response_id", "Cannot cancel a synchronous response.")
    verbs.perform(request, context, caller, "cancel", ids.show("job", row.id))
    with context.acting(caller.tenant) as tx:
        progress = stored.progress_of(context, tx, row, text=False)
        return json_response(stored.shown_object(row, progress))


@router.delete(_ONE, response_model=ResponseDeleted)
def delete_response(
    request: Request, context: ContextDep, caller: Submitter, response_id: ResponseId
) -> Response:
    """Deletes a response, with its job; 409 while that runs."""
    with context.acting(caller.tenant) as tx:
        row = stored.find(tx, caller.tenant, response_id)
        conversations.take_turns_of(context, tx, row)
    if row.background:
        verbs.perform(request, context, caller, "delete", ids.show("job", row.id))
    with context.acting(caller.tenant) as tx:
        store.delete(tx, caller.tenant, row.id)
    deleted = {"id": ids.show(PREFIX, row.id), "object": "response", "deleted": True}
    return json_response(deleted)


@router.get(_ONE + "/input_items", response_model=ResponseItemList)
def list_input_items(
    context: ContextDep,
    caller: Reader,
    response_id: ResponseId,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Annotated[Literal["asc", "desc"], Query()] = "desc",
    after: Annotated[
        str | None, Query(max_length=200, description="the last id of the page before")
    ] = None,
    include: _Include = None,
) -> Response:
    """Lists the items that the model was given: those of the conversation before, then those of the
    request."""
    with context.acting(caller.tenant) as tx:
        row = stored.find(tx, caller.tenant, response_id)
        items = stored.items_before(context, tx, row)
    if order == "desc":
        items.reverse()
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise _refused("after", f"there is no item {after!r} in this response")
        items = items[places[0] + 1 :]
    return json_response(page_object(items, limit))


def _refused(field: str, message: str) -> Invalid:
    return Invalid(message, faults=[Fault((field,), "invalid_value", message)])
