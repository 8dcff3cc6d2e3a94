"""Batches of OpenAI's and Anthropic's clients: one that a client may have lost the answer to, and
asks for again.

Their packages send no Idempotency-Key, but say that a request is a retry.
"""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from jobs import clock, ids
from jobs.store.db import Tx

_WITHIN = timedelta(minutes=15)
"""More than the package's tries take together."""

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:tenant || :request, 0))")
_MADE = text("""
    SELECT id FROM jobs
    WHERE tenant_id = :tenant AND id > :since AND dialect = :dialect
      AND CAST(asked AS jsonb) ->> 'request' = :request
    ORDER BY id DESC LIMIT 1
""")


def lock(tx: Tx, tenant: str, request: str) -> None:
    """Until the transaction ends no other makes one by the same request."""
    tx.execute(_LOCK, {"tenant": tenant, "request": request})


def find_recent(tx: Tx, tenant: str, request: str, dialect: str) -> UUID | None:
    """The latest batch that was made by the same request. request: its fingerprint."""
    since = ids.earliest(clock.now() - _WITHIN)
    values = {"tenant": tenant, "request": request, "since": since, "dialect": dialect}
    return tx.scalars(_MADE, values).one_or_none()
