"""Idempotency keys of jobs: a key is stored in the transaction that stores its job, or not at all,
so that no crash leaves one without the other."""

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from sqlalchemy import text

from jobs.errors import KeyInFlight, KeyReused
from jobs.intake.idempotency_key import Claim
from jobs.store.db import Tx


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What the first request under a key was answered. answer: JSON."""

    job_id: UUID
    answer: str


_FIND = text("""
    SELECT fingerprint, job_id, answer FROM idempotency_keys
    WHERE tenant_id = :tenant AND key = :key
""")


def find(tx: Tx, claim: Claim) -> StoredResponse | None:
    """The answer that the key has. Raises KeyReused where it is that of another request."""
    found = tx.execute(_FIND, {"tenant": claim.tenant, "key": claim.key}).one_or_none()
    if found is None:
        return None
    if bytes(found.fingerprint) != claim.fingerprint:
        raise KeyReused
    return StoredResponse(found.job_id, found.answer)


_LOCK = text("SELECT pg_try_advisory_xact_lock(:lock)")


def lock(tx: Tx, claim: Claim) -> None:
    """Holds the key until the transaction ends. Raises KeyInFlight where another request holds it
    or was faster, KeyReused where that was not the same."""
    # A statement of its own: who looked before it had the lock would miss what was just committed.
    if not tx.scalars(_LOCK, {"lock": _lock_of(claim)}).one():
        raise KeyInFlight
    if find(tx, claim):
        raise KeyInFlight


def _lock_of(claim: Claim) -> int:
    """By a hash for which nobody finds a key that meets another tenant's, to see it in flight."""
    named = sha256(f"{claim.tenant}\n{claim.key}".encode()).digest()
    return int.from_bytes(named[:8], signed=True)


_KEEP = text("""
    INSERT INTO idempotency_keys (tenant_id, key, fingerprint, job_id, answer)
    VALUES (:tenant, :key, :fingerprint, :job, :answer)
""")


def store(tx: Tx, claim: Claim, job_id: UUID, answer: bytes) -> None:
    """Stores the answer of the request that took the key."""
    values = {
        "tenant": claim.tenant,
        "key": claim.key,
        "fingerprint": claim.fingerprint,
        "job": job_id,
        "answer": answer.decode(),
    }
    tx.execute(_KEEP, values)


_FORGET = text("""
    DELETE FROM idempotency_keys WHERE (tenant_id, key) IN (
        SELECT tenant_id, key FROM idempotency_keys
        WHERE created_at < now() - make_interval(secs => :age_s)
        ORDER BY created_at LIMIT :most FOR UPDATE SKIP LOCKED)
""")


def delete_old(tx: Tx, age_s: float, most: int = 1000) -> int:
    """Deletes up to `most` keys that are older, and returns how many there were."""
    return tx.execute(_FORGET, {"age_s": age_s, "most": most}).rowcount
