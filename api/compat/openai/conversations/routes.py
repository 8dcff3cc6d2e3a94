"""/v1/conversations: conversations, and their items."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.compat.generation.preparation import refused
from api.compat.openai.conversations import stored
from api.compat.openai.conversations.schemas import (
    Conversation,
    ConversationDeleted,
    ConversationItem,
    ConversationItemList,
    ConversationItemsRequest,
    ConversationRequest,
    ConversationUpdate,
)
from api.compat.openai.conversations.stored import PREFIX
from api.compat.openai.files import page_object
from api.compat.openai.schemas import ERRORS
from api.context import Context, ContextDep
from api.dependencies import Reader, Submitter, Uploader
from api.http import bodies, idempotency
from api.http.errors import validated
from api.http.responses import json_response
from api.routes.jobs.lookup import is_retry
from api.schemas.common import NO_NUL
from jobs import ids
from jobs.dialects.responses.items import Item, read_items
from jobs.errors import NotFound
from jobs.identity import Caller
from jobs.intake import validation
from jobs.models.inputs.fields import FieldError
from jobs.store.conversations import items as item_rows
from jobs.store.conversations import rows
from jobs.store.conversations.rows import ConversationRow
from jobs.store.db import Tx

router = APIRouter(tags=["openai"], responses=ERRORS)
PATH = "/v1/conversations"
_ONE = PATH + "/{conversation_id}"
_ITEMS, _ITEM = _ONE + "/items", _ONE + "/items/{item_id}"

_MAX_BYTES = 1 << 20  # of a request
_RETRIED_WITHIN_S = 300.0  # of the append whose answer was lost

ConversationId = Annotated[str, Path(description="conv_…", max_length=200)]
ItemId = Annotated[str, Path(max_length=200, pattern=NO_NUL)]
_Include = Annotated[list[str] | None, Query(description="accepted; nothing is left out without")]


def takes_items(path: str) -> bool:
    """Returns True for the paths whose handlers read the bodies of POST requests themselves."""
    return path == PATH or (path.startswith(f"{PATH}/") and path.endswith("/items"))


@router.post(
    PATH,
    response_model=Conversation,
    openapi_extra=idempotency.body_doc("ConversationRequest"),
)
async def create_conversation(request: Request, context: ContextDep, caller: Uploader) -> Response:
    """Makes a conversation, which responses go on with by its id."""
    raw = await _raw(request, context, caller)
    async with context.turns.place(caller.tenant):
        return await run_in_threadpool(_create, context, caller, raw)


async def _raw(request: Request, context: Context, caller: Caller) -> bytes:
    bodies.media_type(request, bodies.JSON)
    return await context.call_bodies.read(request, _MAX_BYTES, caller.tenant)


def _parsed(raw: bytes) -> Any:
    value = validation.parse_call(raw)  # a response that goes on with the items is a call
    validation.refuse_surrogates(value)
    return value


def _create(context: Context, caller: Caller, raw: bytes) -> Response:
    asked = validated(ConversationRequest, _parsed(raw))
    items, metadata = _read(asked.items or ()), orjson.dumps(asked.metadata or {})
    with context.acting(caller.tenant) as tx:
        keep_days = context.settings.keep_responses_days
        row = rows.create(tx, caller.tenant, ids.new(), metadata, keep_days)
        row, _ = stored.append(context, tx, row, items)
        return json_response(stored.shown(row))


@router.get(_ONE, response_model=Conversation)
def get_conversation(
    context: ContextDep, caller: Reader, conversation_id: ConversationId
) -> Response:
    """Returns a conversation, without its items."""
    with context.acting(caller.tenant) as tx:
        return json_response(stored.shown(stored.find(context, tx, caller.tenant, conversation_id)))


@router.post(_ONE, response_model=Conversation)
def update_conversation(
    context: ContextDep,
    caller: Submitter,
    conversation_id: ConversationId,
    asked: ConversationUpdate,
) -> Response:
    """Replaces the metadata of a conversation."""
    metadata, keep_days = orjson.dumps(asked.metadata or {}), context.settings.keep_responses_days
    with context.acting(caller.tenant) as tx:
        row = stored.find(context, tx, caller.tenant, conversation_id, lock=True)
        changed = rows.set_metadata(tx, caller.tenant, row.id, metadata, keep_days)
        return json_response(stored.shown(changed or row))


@router.delete(_ONE, response_model=ConversationDeleted)
def delete_conversation(
    request: Request, context: ContextDep, caller: Submitter, conversation_id: ConversationId
) -> Response:
    """Deletes a conversation with its items; responses that it went on with stay."""
    id = ids.parse(PREFIX, conversation_id)
    with context.acting(caller.tenant) as tx:
        if id is None or not (rows.delete(tx, caller.tenant, id) or is_retry(request)):
            raise NotFound(f"Conversation with id {conversation_id[:100]!r} not found.")
    deleted = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
    return json_response(deleted)


@router.post(
    _ITEMS,
    response_model=ConversationItemList,
    openapi_extra=idempotency.body_doc("ConversationItemsRequest"),
)
async def create_items(
    request: Request,
    context: ContextDep,
    caller: Uploader,
    conversation_id: ConversationId,
    include: _Include = None,
) -> Response:
    """Appends items to a conversation."""
    raw, retries = await _raw(request, context, caller), is_retry(request)
    async with context.turns.place(caller.tenant):
        return await run_in_threadpool(
            _append, context, caller, conversation_id, raw, retries=retries
        )


def _append(
    context: Context, caller: Caller, conversation_id: str, raw: bytes, *, retries: bool
) -> Response:
    items = _read(validated(ConversationItemsRequest, _parsed(raw)).items)
    with context.acting(caller.tenant) as tx:
        row = stored.find(context, tx, caller.tenant, conversation_id, lock=True)
        appended = _last_ones(tx, row, items) if retries else None
        if appended is None:
            stored.check_room(row, len(orjson.dumps(items)))
            _, appended = stored.append(context, tx, row, items)
    return json_response(page_object(appended, len(appended)))


def _last_ones(tx: Tx, row: ConversationRow, items: Sequence[Item]) -> list[Item] | None:
    """Returns the last items of a conversation, where they are those of a request whose answer was
    lost, but for their ids: the package sends nothing by which its retry could be known."""
    last = item_rows.page(
        tx, row.tenant_id, row.id, limit=len(items), ascending=False, within_s=_RETRIED_WITHIN_S
    )
    found = [orjson.loads(one.item) for one in reversed(last)]
    same = [{**one, "id": ""} for one in found] == [{**one, "id": ""} for one in items]
    return found if same else None


@router.get(_ITEMS, response_model=ConversationItemList)
def list_items(
    context: ContextDep,
    caller: Reader,
    conversation_id: ConversationId,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Annotated[Literal["asc", "desc"], Query()] = "desc",
    after: Annotated[
        str | None,
        Query(max_length=200, pattern=NO_NUL, description="the last id of the page before"),
    ] = None,
    include: _Include = None,
) -> Response:
    """Lists the items of a conversation."""
    with context.acting(caller.tenant) as tx:
        row = stored.find(context, tx, caller.tenant, conversation_id)
        last = item_rows.get(tx, caller.tenant, row.id, after) if after is not None else None
        if after is not None and last is None:
            message = f"there is no item {after!r} in this conversation"
            raise refused("after", "invalid_value", message)
        page = item_rows.page(
            tx, caller.tenant, row.id, after=last.place if last else None, limit=limit + 1,
            ascending=order == "asc",
        )  # fmt: skip
    items = [orjson.loads(one.item) for one in page]
    return json_response(page_object(items, limit))


@router.get(_ITEM, response_model=ConversationItem)
def get_item(
    context: ContextDep,
    caller: Reader,
    conversation_id: ConversationId,
    item_id: ItemId,
    include: _Include = None,
) -> Response:
    """Returns an item of a conversation."""
    with context.acting(caller.tenant) as tx:
        row = stored.find(context, tx, caller.tenant, conversation_id)
        item = item_rows.get(tx, caller.tenant, row.id, item_id)
    if item is None:
        raise _no_item(item_id)
    return json_response(orjson.loads(item.item))


@router.delete(_ITEM, response_model=Conversation)
def delete_item(
    request: Request,
    context: ContextDep,
    caller: Submitter,
    conversation_id: ConversationId,
    item_id: ItemId,
) -> Response:
    """Deletes an item of a conversation, which is returned."""
    with context.acting(caller.tenant) as tx:
        row = stored.find(context, tx, caller.tenant, conversation_id, lock=True)
        if not (item_rows.remove(tx, caller.tenant, row.id, item_id) or is_retry(request)):
            raise _no_item(item_id)
    return json_response(stored.shown(row))


def _read(items: Sequence[Any]) -> list[Item]:
    try:
        return read_items(items, "items")
    except FieldError as error:
        raise refused(error.field, "invalid_value", str(error)) from None


def _no_item(item_id: str) -> NotFound:
    return NotFound(f"there is no item {item_id[:100]!r} in this conversation")
