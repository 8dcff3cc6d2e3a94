"""Items of conversations, each at a place of its own, and the responses that will bring more."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, insert, select

from jobs.store import queries
from jobs.store.conversations import rows
from jobs.store.conversations.rows import ConversationRow
from jobs.store.db import Tx
from jobs.store.scaling_tables import conversation_items, conversation_turns

_I, _T = conversation_items.c, conversation_turns.c


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item of a conversation."""

    place: int  #: within the conversation
    item: str  #: JSON


_COLUMNS = queries.columns(ItemRow, conversation_items)


def append(
    tx: Tx, row: ConversationRow, items: Mapping[str, bytes], keep_days: float
) -> ConversationRow:
    """Appends items to a conversation that this transaction has locked, which is kept for so many
    days more; returns its row as it is then. items: JSON by ids, which no item of it has."""
    values = [
        {"conversation_id": row.id, "place": row.next_place + n, "tenant_id": row.tenant_id,
         "item_id": id, "item": item.decode()}
        for n, (id, item) in enumerate(items.items())
    ]  # fmt: skip
    if values:
        tx.execute(insert(conversation_items), values)
    size = sum(map(len, items.values()))
    return rows.extend(tx, row, keep_days, items=len(values), size=size)


def page(
    tx: Tx, tenant: str, id: UUID, *, after: int | None = None, limit: int | None = None,
    ascending: bool = True, within_s: float | None = None,
) -> Sequence[ItemRow]:  # fmt: skip
    """Returns the items of a conversation in their order, or from the last; after: the place of
    the one before the page. limit None: all. within_s: those alone that are no older."""
    query = select(*_COLUMNS).where(*_own(id))
    if after is not None:
        query = query.where(_I.place > after if ascending else _I.place < after)
    if within_s is not None:
        query = query.where(_I.created_at > queries.in_s(-within_s))
    query = query.order_by(_I.place if ascending else _I.place.desc()).limit(limit)
    return queries.many(tx, ItemRow, query, {"tenant": tenant})


def get(tx: Tx, tenant: str, id: UUID, item_id: str) -> ItemRow | None:
    """Returns an item of a conversation; None where it isn't there."""
    query = select(*_COLUMNS).where(*_own(id), _I.item_id == item_id)
    return queries.one(tx, ItemRow, query, {"tenant": tenant})


def present(tx: Tx, tenant: str, id: UUID, item_ids: Collection[str]) -> set[str]:
    """Returns those of these ids that items of a conversation have."""
    query = select(_I.item_id).where(*_own(id), _I.item_id.in_(item_ids))
    return set(tx.scalars(query, {"tenant": tenant}))


def remove(tx: Tx, tenant: str, id: UUID, item_id: str) -> bool:
    """Deletes an item of a conversation that this transaction has locked; False: it wasn't
    there."""
    gone = delete(conversation_items).where(*_own(id), _I.item_id == item_id)
    size = tx.scalar(gone.returning(func.octet_length(_I.item)), {"tenant": tenant})
    if size is None:
        return False
    rows.shrink(tx, tenant, id, size)
    return True


def _own(id: UUID) -> tuple[ColumnElement[bool], ...]:
    return _I.conversation_id == id, queries.is_own(conversation_items)


def add_turn(tx: Tx, tenant: str, id: UUID, response_id: UUID) -> None:
    """Remembers a response in the background, whose items will be appended."""
    turn = {"conversation_id": id, "response_id": response_id, "tenant_id": tenant}
    tx.execute(insert(conversation_turns).values(turn))


def turns(tx: Tx, tenant: str, id: UUID) -> Sequence[UUID]:
    """Returns the responses whose items are still to be appended, in the order of their
    creation."""
    query = select(_T.response_id).where(
        _T.conversation_id == id, queries.is_own(conversation_turns)
    )
    return list(tx.scalars(query.order_by(_T.response_id), {"tenant": tenant}))


def end_turn(tx: Tx, tenant: str, id: UUID, response_id: UUID) -> None:
    """Forgets a response whose items are appended, or never will be."""
    turn = delete(conversation_turns).where(
        _T.conversation_id == id, _T.response_id == response_id, queries.is_own(conversation_turns)
    )
    tx.execute(turn, {"tenant": tenant})
