"""Conversations of OpenAI's Conversations API."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete as delete_from
from sqlalchemy import func, insert, select, update

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.scaling_tables import conversations

_MOST_EXPIRED = 1000  # of one transaction
_DAY_S = 86_400


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
        expires_at=queries.in_s(keep_days * _DAY_S),
    )
    return ConversationRow(*tx.execute(row.returning(*_COLUMNS)).one())


def get(tx: Tx, tenant: str, id: UUID, *, lock: bool = False) -> ConversationRow | None:
    """Returns a tenant's conversation; None where it isn't there, or has expired. lock: nobody else
    changes it until the transaction ends."""
    own = conversations.c.id == id, queries.is_own(conversations), _IS_THERE
    query = select(*_COLUMNS).where(*own)
    query = query.with_for_update() if lock else query
    return queries.one(tx, ConversationRow, query, {"tenant": tenant})


def set_metadata(
    tx: Tx, tenant: str, id: UUID, metadata: bytes, keep_days: float
) -> ConversationRow | None:
    """Replaces the metadata of a conversation; None where it isn't there."""
    own = update(conversations).where(
        conversations.c.id == id, queries.is_own(conversations), _IS_THERE
    )
    changed = own.values(
        metadata=metadata.decode(), expires_at=queries.in_s(keep_days * _DAY_S)
    ).returning(*_COLUMNS)
    return queries.one(tx, ConversationRow, changed, {"tenant": tenant})


def delete(tx: Tx, tenant: str, id: UUID) -> bool:
    """Deletes a tenant's conversation with its items; False: it wasn't there."""
    own = delete_from(conversations).where(conversations.c.id == id, queries.is_own(conversations))
    return tx.execute(own, {"tenant": tenant}).rowcount > 0


def delete_expired(tx: Tx) -> int:
    """Deletes some conversations that have expired; returns their number."""
    c = conversations.c
    some = select(c.id).where(c.expires_at < func.now()).order_by(c.expires_at)
    expired = some.limit(_MOST_EXPIRED).with_for_update(skip_locked=True)
    return tx.execute(delete_from(conversations).where(c.id.in_(expired))).rowcount
