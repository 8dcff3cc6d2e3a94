"""Conversations of OpenAI's Conversations API."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy import delete as delete_from

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.scaling_tables import conversations

_MOST_EXPIRED = 1000  # of one transaction


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation."""

    id: UUID  #: shown as `conv_…`
    tenant_id: str  #: its tenant
    metadata: str  #: JSON
    bytes: int  #: of its items
    next_place: int  #: of the item that comes next
    created_at: datetime  #: time at which it was stored


_COLUMNS = queries.columns(ConversationRow, conversations)
_IS_THERE = conversations.c.expires_at > func.now()


def create(tx: Tx, tenant: str, id: UUID, metadata: bytes, keep_days: float) -> ConversationRow:
    """Stores a conversation without items, for so many days after its last change."""
    row = insert(conversations).values(
        id=id,
        tenant_id=tenant,
        metadata=metadata.decode(),
        expires_at=queries.in_days(keep_days),
    )
    return ConversationRow(*tx.execute(row.returning(*_COLUMNS)).one())


def get(tx: Tx, tenant: str, id: UUID, *, lock: bool = False) -> ConversationRow | None:
    """Returns a tenant's conversation; None where it isn't there, or has expired. lock: nobody else
    changes it until the transaction ends."""
    query = select(*_COLUMNS).where(_is_one(id), _IS_THERE)
    query = query.with_for_update() if lock else query
    return queries.one(tx, ConversationRow, query, {"tenant": tenant})


def extend(
    tx: Tx, row: ConversationRow, keep_days: float, *, items: int = 0, size: int = 0
) -> ConversationRow:
    """Keeps a conversation that this transaction has locked for so many days from now; returns its
    row as it is then. items, size: those that were appended, and their bytes."""
    c = conversations.c
    changed = update(conversations).where(_is_one(row.id)).values(
        next_place=c.next_place + items,
        bytes=c.bytes + size,
        expires_at=queries.in_days(keep_days),
    )  # fmt: skip
    own = {"tenant": row.tenant_id}
    return queries.one(tx, ConversationRow, changed.returning(*_COLUMNS), own) or row


def shrink(tx: Tx, tenant: str, id: UUID, size: int) -> None:
    """Counts bytes of an item less, which was deleted."""
    changed = update(conversations).where(_is_one(id))
    tx.execute(changed.values(bytes=conversations.c.bytes - size), {"tenant": tenant})


def set_metadata(
    tx: Tx, tenant: str, id: UUID, metadata: bytes, keep_days: float
) -> ConversationRow | None:
    """Replaces the metadata of a conversation; None where it isn't there."""
    own = update(conversations).where(_is_one(id), _IS_THERE)
    changed = own.values(metadata=metadata.decode(), expires_at=queries.in_days(keep_days))
    return queries.one(tx, ConversationRow, changed.returning(*_COLUMNS), {"tenant": tenant})


def delete(tx: Tx, tenant: str, id: UUID) -> bool:
    """Deletes a tenant's conversation with its items; False: it wasn't there."""
    own = delete_from(conversations).where(_is_one(id))
    return tx.execute(own, {"tenant": tenant}).rowcount > 0


def _is_one(id: UUID) -> ColumnElement[bool]:
    return (conversations.c.id == id) & queries.is_own(conversations)


def delete_expired(tx: Tx) -> int:
    """Deletes some conversations that have expired; returns their number."""
    c = conversations.c
    some = select(c.id).where(c.expires_at < func.now()).order_by(c.expires_at)
    expired = some.limit(_MOST_EXPIRED).with_for_update(skip_locked=True)
    return tx.execute(delete_from(conversations).where(c.id.in_(expired))).rowcount
