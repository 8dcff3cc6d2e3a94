"""Stored responses of OpenAI's Responses API.

One in the background is also a job of one item with the same id, whose result is its output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete as delete_from
from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.jobs import deletion
from jobs.store.tables import responses

_MOST_EXPIRED = 1000  # of one transaction
MOST_IN_CHAIN = 1000
"""Responses of one conversation."""


@dataclass(frozen=True, slots=True)
class ResponseRow:
    """A stored response."""

    id: UUID  #: shown as `resp_…`
    tenant_id: str  #: its tenant
    previous_id: UUID | None  #: response whose conversation it goes on with
    background: bool  #: a job runs it
    request: str  #: JSON: what it repeats of its request
    input: str  #: JSON: items of its request
    ended: str | None  #: JSON: status, output and usage; None: in the background
    created_at: datetime  #: time at which it was stored


_COLUMNS = queries.columns(ResponseRow, responses)
_IS_THERE = responses.c.expires_at > func.now()


@dataclass(frozen=True, slots=True)
class NewResponse:
    """A response to store."""

    id: UUID  #: see ResponseRow, as for the other fields
    tenant: str
    previous_id: UUID | None
    request: bytes
    input: bytes
    ended: bytes | None


def store(tx: Tx, new: NewResponse, keep_days: float) -> None:
    """Stores a response for so many days; one that another api has stored stays as it is."""
    row = insert(responses).values(
        id=new.id,
        tenant_id=new.tenant,
        previous_id=new.previous_id,
        background=new.ended is None,
        request=new.request.decode(),
        input=new.input.decode(),
        ended=None if new.ended is None else new.ended.decode(),
        expires_at=queries.in_days(keep_days),
    )
    tx.execute(row.on_conflict_do_nothing())


def get(tx: Tx, tenant: str, id: UUID) -> ResponseRow | None:
    """Returns a tenant's response; None where it isn't there, or has expired."""
    query = select(*_COLUMNS).where(responses.c.id == id, queries.is_own(responses), _IS_THERE)
    return queries.one(tx, ResponseRow, query, {"tenant": tenant})


# Written out: a recursive query. One more than the longest chain shows that it is longer.
_CHAIN = text(f"""
    WITH RECURSIVE chain AS (
        SELECT r.*, 1 AS place FROM responses r
        WHERE id = :id AND tenant_id = :tenant AND expires_at > now()
        UNION ALL
        SELECT r.*, chain.place + 1 FROM chain JOIN responses r ON r.id = chain.previous_id
        WHERE r.tenant_id = :tenant AND r.expires_at > now() AND chain.place <= {MOST_IN_CHAIN}
    )
    SELECT id, tenant_id, previous_id, background, request, input, ended, created_at
    FROM chain ORDER BY place DESC
""")


def chain(tx: Tx, tenant: str, id: UUID) -> Sequence[ResponseRow]:
    """Returns the responses of a conversation up to one, oldest first; none where that isn't there.

    The first has a `previous_id` where an older one was deleted or has expired.
    """
    return queries.many(tx, ResponseRow, _CHAIN, {"id": id, "tenant": tenant})


def delete(tx: Tx, tenant: str, id: UUID) -> bool:
    """Deletes a tenant's response; False: it wasn't there. Its job stays."""
    own = delete_from(responses).where(responses.c.id == id, queries.is_own(responses))
    return tx.execute(own, {"tenant": tenant}).rowcount > 0


def delete_expired(tx: Tx) -> int:
    """Deletes some responses that have expired, with their jobs; returns their number."""
    r = responses.c
    some = select(r.id).where(r.expires_at < func.now()).order_by(r.expires_at)
    expired = tx.execute(
        delete_from(responses)
        .where(r.id.in_(some.limit(_MOST_EXPIRED).with_for_update(skip_locked=True)))
        .returning(r.id, r.background)
    ).all()
    if jobs := [row.id for row in expired if row.background]:
        ended = deletion.lock_ended(tx, jobs)
        deletion.enqueue(tx, ended)
        deletion.delete_jobs(tx, ended)
    return len(expired)
