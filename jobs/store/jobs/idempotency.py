"""Requests that are sent again: idempotency keys of jobs, and batches of other dialects.

A key is stored in the transaction that stores its job, or not at all, so that no crash leaves one
without the other. OpenAI's and Anthropic's packages send no Idempotency-Key, but say that a request
is a retry: their batches are found by the fingerprint of the request.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from sqlalchemy import BigInteger, bindparam, cast, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects.postgresql import JSONB

from jobs import clock, ids
from jobs.errors import IdempotencyKeyInFlight, IdempotencyKeyReused
from jobs.intake.idempotency_key import Claim, JobDeleted
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.db import lock as lock_name
from jobs.store.tables import idempotency_keys as table
from jobs.store.tables import jobs


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """Response to the first request under a key."""

    job_id: UUID  #: job that it made
    answer: str  #: JSON


_FIND = select(table.c.fingerprint, table.c.job_id, table.c.answer).where(queries.is_own(table))


_OF_DELETED = ""
"""In place of the answer of a key whose job was deleted."""


def find(
    tx: Tx, claim: Claim, is_same: Callable[[UUID], bool] = lambda job_id: False
) -> StoredResponse | None:
    """Returns the response that a key has. is_same: returns True for a job that the same request
    made, though it had another fingerprint.

    Raises IdempotencyKeyReused where it belongs to another request, JobDeleted where its job was
    deleted.
    """
    query = _FIND.where(table.c.key == claim.key)
    found = tx.execute(query, {"tenant": claim.tenant}).one_or_none()
    if found is None:
        return None
    if bytes(found.fingerprint) != claim.fingerprint and not is_same(found.job_id):
        raise IdempotencyKeyReused
    if found.answer == _OF_DELETED:
        raise JobDeleted
    return StoredResponse(found.job_id, found.answer)


_LOCK = select(func.pg_try_advisory_xact_lock(bindparam("lock", type_=BigInteger)))


def try_lock(tx: Tx, claim: Claim) -> bool:
    """Locks the key until the transaction ends; returns False where another request has it.

    Look for its response in another statement: one that looks before it has the lock misses what
    was just committed.
    """
    return bool(tx.scalars(_LOCK, {"lock": _lock_id(claim)}).one())


def lock(tx: Tx, claim: Claim) -> None:
    """Locks the key until the transaction ends.

    Raises IdempotencyKeyInFlight where another request has it or was faster, and what `find`
    raises.
    """
    if not try_lock(tx, claim) or find(tx, claim):
        raise IdempotencyKeyInFlight


def _lock_id(claim: Claim) -> int:
    """Hashes such that no key can be made to collide with another tenant's, to see it in flight."""
    named = sha256(f"{claim.tenant}\n{claim.key}".encode()).digest()
    return int.from_bytes(named[:8], signed=True)


def store(tx: Tx, claim: Claim, job_id: UUID, answer: bytes) -> None:
    """Stores the response of the request that locked the key."""
    tx.execute(
        insert(table).inline().values(
            tenant_id=claim.tenant, key=claim.key, fingerprint=claim.fingerprint, job_id=job_id,
            answer=answer.decode(),
        )
    )  # fmt: skip


def empty(tx: Tx, job_ids: Collection[UUID]) -> None:
    """Takes the answers from the keys of deleted jobs: the keys make no other job."""
    tx.execute(update(table).where(table.c.job_id.in_(job_ids)).values(answer=_OF_DELETED))


def delete_old(tx: Tx, age_s: float, most: int = 1000) -> int:
    """Deletes up to `most` keys that are older than age_s; returns their number."""
    key = table.c.tenant_id, table.c.key
    old = select(*key).where(table.c.created_at < func.now() - timedelta(seconds=age_s))
    some = old.order_by(table.c.created_at).limit(most).with_for_update(skip_locked=True)
    return tx.execute(delete(table).where(tuple_(*key).in_(some))).rowcount


_BATCH_RETRIED_WITHIN = timedelta(minutes=15)
"""Longer than all tries of a package together."""


def lock_batch(tx: Tx, tenant: str, request: str) -> None:
    """Keeps the same request from making another batch until the transaction ends."""
    lock_name(tx, tenant + request)


def find_batch(tx: Tx, tenant: str, request: str, dialect: str) -> UUID | None:
    """Returns the latest batch that the same request made. request: its fingerprint."""
    since = ids.earliest(clock.now() - _BATCH_RETRIED_WITHIN)
    asked = cast(jobs.c.asked, JSONB)["request"].astext
    # The newest jobs of a tenant by its index, down to that time: only those are parsed.
    its = queries.is_own(jobs), jobs.c.id > since, jobs.c.dialect == dialect, asked == request
    latest = select(jobs.c.id).where(*its).order_by(jobs.c.id.desc()).limit(1)
    return tx.scalars(latest, {"tenant": tenant}).one_or_none()
