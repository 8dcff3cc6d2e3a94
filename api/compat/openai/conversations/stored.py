"""Stored conversations: reading them, and appending to them.

Whoever appends locks the conversation's row first: its items have one order, and nothing is lost.
What a response in the background brings is appended once it has ended, by the next transaction
that looks at the conversation.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import orjson

from api.compat.openai.responses import stored as stored_responses
from api.services.resources import Resources
from jobs import ids
from jobs.dialects.responses.items import Item, renewed
from jobs.errors import BlobStoreUnavailable, Fault, Invalid, MillraceError, NotFound
from jobs.store.conversations import items as item_rows
from jobs.store.conversations import rows
from jobs.store.conversations.rows import ConversationRow
from jobs.store.db import Tx
from jobs.store.jobs import responses
from jobs.store.jobs.responses import ResponseRow

PREFIX = "conv"
MOST_BYTES = 8 << 20
"""Bytes of the items of a conversation; the last that fits may be a response that passes them."""


def find(
    resources: Resources, tx: Tx, tenant: str, conversation_id: str, *, lock: bool = False
) -> ConversationRow:
    """Returns a tenant's conversation, with what ended responses brought. lock: nobody else changes
    it until the transaction ends. Raises NotFound."""
    id = ids.parse(PREFIX, conversation_id)
    row = rows.get(tx, tenant, id, lock=lock) if id else None
    if row and item_rows.turns(tx, tenant, row.id):
        row = rows.get(tx, tenant, row.id, lock=True)
        if row:
            row = _take_turns(resources, tx, row)
    if row is None:
        raise NotFound(f"Conversation with id {conversation_id[:100]!r} not found.")
    return row


def _take_turns(resources: Resources, tx: Tx, row: ConversationRow) -> ConversationRow:
    """Appends what responses in the background brought that have ended."""
    for response_id in item_rows.turns(tx, row.tenant_id, row.id):
        response = responses.get(tx, row.tenant_id, response_id)
        ended = _end_of(resources, tx, response) if response else {}
        if ended is None:
            continue
        item_rows.end_turn(tx, row.tenant_id, row.id, response_id)
        if response is not None:
            row = _append_turn(resources, tx, row, orjson.loads(response.input), ended)
    return row


def take_turns_of(resources: Resources, tx: Tx, response: ResponseRow) -> None:
    """Appends what responses brought to the conversation of one of them, before it is deleted."""
    named = orjson.loads(response.request).get("conversation") if response.background else None
    with suppress(NotFound):
        if named:
            find(resources, tx, response.tenant_id, named["id"])


def _end_of(resources: Resources, tx: Tx, response: ResponseRow) -> Mapping[str, Any] | None:
    """Returns what a response has gained at its end; None: it has not ended."""
    try:
        return stored_responses.progress_of(resources, tx, response, text=False).ended
    except BlobStoreUnavailable:
        raise
    except MillraceError:  # its job was deleted
        return {}


def bring(
    resources: Resources,
    tx: Tx,
    tenant: str,
    to: str,
    input: Sequence[Item],
    ended: Mapping[str, Any],
) -> None:
    """Appends the items of a request and of its response to a conversation; one that was deleted
    meanwhile gets none."""
    with suppress(NotFound):
        _append_turn(resources, tx, find(resources, tx, tenant, to, lock=True), input, ended)


def _append_turn(
    resources: Resources,
    tx: Tx,
    row: ConversationRow,
    input: Sequence[Item],
    ended: Mapping[str, Any],
) -> ConversationRow:
    """Appends the items of a request and of its response to a locked conversation: none of one that
    failed, nor once more of one that another api has appended. Returns the row as it is then."""
    output: Sequence[Item] = ended.get("output", ())
    if ended.get("status") not in ("completed", "incomplete"):
        return row
    if item_rows.present(tx, row.tenant_id, row.id, [item["id"] for item in output]):
        return row
    return append(resources, tx, row, [*input, *output])[0]


def append(
    resources: Resources, tx: Tx, row: ConversationRow, items: Sequence[Item]
) -> tuple[ConversationRow, list[Item]]:
    """Appends items to a locked conversation; returns its row as it is then, and the items, with
    another id where one has theirs."""
    taken = item_rows.present(tx, row.tenant_id, row.id, [item["id"] for item in items])
    appended: list[Item] = []
    for item in items:
        appended.append(renewed(item) if item["id"] in taken else item)
        taken.add(appended[-1]["id"])
    written = {item["id"]: orjson.dumps(item) for item in appended}
    return item_rows.append(tx, row, written, resources.settings.keep_responses_days), appended


def check_room(row: ConversationRow, more: int = 0) -> None:
    """Raises Invalid where a conversation holds no more bytes."""
    if row.bytes + more > MOST_BYTES:
        message = f"a conversation holds {MOST_BYTES:,} bytes of items at most: begin another one"
        raise Invalid(message, faults=[Fault(("conversation",), "too_large", message)])


def history(resources: Resources, tenant: str, conversation_id: str) -> list[Item]:
    """Returns the items of a conversation that a response goes on with. Raises NotFound, Invalid
    where it is full."""
    with resources.acting(tenant) as tx:
        row = find(resources, tx, tenant, conversation_id)
        check_room(row, 1)
        return [orjson.loads(one.item) for one in item_rows.page(tx, tenant, row.id)]


def await_turn(resources: Resources, tx: Tx, tenant: str, response: UUID, to: str) -> None:
    """Notes that a response in the background will bring items `to` a conversation, which is kept
    as long as the response from now on. Raises NotFound."""
    row = find(resources, tx, tenant, to, lock=True)
    rows.extend(tx, row, resources.settings.keep_responses_days)
    item_rows.add_turn(tx, tenant, row.id, response)


def shown(row: ConversationRow) -> dict[str, Any]:
    """Returns the object of a conversation."""
    return {
        "id": ids.show(PREFIX, row.id),
        "object": "conversation",
        "created_at": int(row.created_at.timestamp()),
        "metadata": orjson.loads(row.metadata),
    }
