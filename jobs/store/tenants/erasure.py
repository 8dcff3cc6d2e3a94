"""Tenants that leave: what is theirs goes, some of it in each transaction, until nothing is left.

Its row in `tenants` says so, and stays: nobody can come under that name again. So do the stumps of
its keys (that a key was ever made ends the open mode), what it owes, and the audit log. Whatever
was under way when it left and arrives later is found, and goes too.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.errors import NotFound
from jobs.store.db import Tx, notify_keys
from jobs.store.jobs import deletion, verbs

_MOST_JOBS = 500  # of one transaction
_MOST_ITEMS = 1_000_000  # of those jobs; one job is the least
_MOST_ROWS = 10_000

_KNOWN = text("""
    SELECT EXISTS (SELECT FROM tenants WHERE tenant_id = :tenant)
        OR EXISTS (SELECT FROM jobs WHERE tenant_id = :tenant)
        OR EXISTS (SELECT FROM api_keys WHERE tenant_id = :tenant)
        OR EXISTS (SELECT FROM usage WHERE tenant_id = :tenant)
        OR EXISTS (SELECT FROM idempotency_keys WHERE tenant_id = :tenant)
        OR EXISTS (SELECT FROM webhook_secrets WHERE tenant_id = :tenant)
        OR EXISTS (SELECT FROM files WHERE tenant_id = :tenant)
""")
_LEAVE = text("""
    INSERT INTO tenants AS t (tenant_id, erased_at) VALUES (:tenant, now())
    ON CONFLICT (tenant_id) DO UPDATE
    SET erased_at = coalesce(t.erased_at, now()), weight = 1, soft_cap = NULL, hard_cap = NULL,
        webhook_url = NULL
""")
_REVOKE = text("""
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()), name = '', hint = ''
    WHERE tenant_id = :tenant
""")


def begin(tx: Tx, tenant: str) -> None:
    """From the commit on it has no key, and nothing of it is worked on for long. Harmless to
    repeat. Raises NotFound where nobody ever had that name."""
    if not tx.scalar(_KNOWN, {"tenant": tenant}):
        raise NotFound(f"there is no tenant {tenant}")
    tx.execute(_LEAVE, {"tenant": tenant})  # first: who makes a key waits here, and is refused
    tx.execute(_REVOKE, {"tenant": tenant})
    notify_keys(tx, tenant)


_LEFT = text("""
    SELECT t.erased_at,
           (SELECT count(*) FROM jobs WHERE tenant_id = :tenant AND finished_at IS NULL) AS open,
           (SELECT count(*) FROM jobs WHERE tenant_id = :tenant) AS jobs,
           d.jobs AS erasing, d.items,
           (SELECT count(*) FROM idempotency_keys WHERE tenant_id = :tenant)
               + (SELECT count(*) FROM webhook_secrets WHERE tenant_id = :tenant)
               + (SELECT count(*) FROM webhook_endpoints WHERE tenant_id = :tenant)
               + (SELECT count(*) FROM webhook_deliveries
                  WHERE tenant_id = :tenant AND job_id IS NULL)
               + (SELECT count(*) FROM limits WHERE tenant_id = :tenant)
               + (SELECT count(*) FROM files WHERE tenant_id = :tenant) AS others
    FROM tenants t,
         (SELECT count(*) AS jobs, coalesce(sum(total - erased), 0) AS items
          FROM deletions WHERE tenant_id = :tenant) AS d
    WHERE t.tenant_id = :tenant AND t.erased_at IS NOT NULL
""")


def remaining(tx: Tx, tenant: str) -> RowMapping:
    """When it left, and what is still there: jobs, of which `open` run; jobs whose rows (of so many
    items) or payloads are being erased; others: rows of every other kind. Raises NotFound."""
    row = tx.execute(_LEFT, {"tenant": tenant}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no tenant {tenant} that is erased")
    return row


_LEAVING = text("""
    SELECT tenant_id FROM tenants t
    WHERE erased_at IS NOT NULL
      AND (EXISTS (SELECT FROM jobs j WHERE j.tenant_id = t.tenant_id)
        OR EXISTS (SELECT FROM idempotency_keys k WHERE k.tenant_id = t.tenant_id)
        OR EXISTS (SELECT FROM webhook_secrets s WHERE s.tenant_id = t.tenant_id)
        OR EXISTS (SELECT FROM webhook_endpoints e WHERE e.tenant_id = t.tenant_id)
        OR EXISTS (SELECT FROM webhook_deliveries d
                   WHERE d.tenant_id = t.tenant_id AND d.job_id IS NULL)
        OR EXISTS (SELECT FROM limits l WHERE l.tenant_id = t.tenant_id)
        OR EXISTS (SELECT FROM turns u WHERE u.tenant_id = t.tenant_id)
        OR EXISTS (SELECT FROM files f WHERE f.tenant_id = t.tenant_id
                   AND (f.expires_at IS NULL OR f.expires_at > now())))
    ORDER BY erased_at FOR NO KEY UPDATE SKIP LOCKED
""")
_LATELY = text("""
    SELECT tenant_id FROM tenants WHERE erased_at > now() - make_interval(secs => :within_s)
""")


def recently_erased(tx: Tx, within_s: float) -> list[str]:
    """Tenants that left within that time."""
    return list(tx.scalars(_LATELY, {"within_s": within_s}))


def continue_erasing(tx: Tx) -> int:
    """Takes the next step for one tenant that leaves; 0: nothing can be done now. What waits for a
    worker's launch, and the queue of deletions, come by themselves."""
    for tenant in tx.scalars(_LEAVING).all():
        for step in _STEPS:
            if done := step(tx, {"tenant": tenant, "most": _MOST_ROWS}):
                return done
    return 0


Step = Callable[[Tx, dict[str, Any]], int]

_SILENCE = """
    UPDATE jobs SET webhook_url = NULL
    WHERE id IN (SELECT id FROM jobs
                 WHERE tenant_id = :tenant AND finished_at IS NULL AND webhook_url IS NOT NULL
                 ORDER BY id LIMIT :most FOR UPDATE)
"""
_UNSEND = """
    DELETE FROM webhook_deliveries
    WHERE id IN (SELECT id FROM webhook_deliveries
                 WHERE tenant_id = :tenant AND (state = 'pending' OR job_id IS NULL)
                 LIMIT :most FOR UPDATE)
"""
# The duty that removes expired files knows the blob store.
_EXPIRE_FILES = """
    UPDATE files SET expires_at = now()
    WHERE id IN (SELECT id FROM files
                 WHERE tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now())
                 ORDER BY id LIMIT :most FOR UPDATE)
"""
_FORGET_KEYS = """
    DELETE FROM idempotency_keys
    WHERE tenant_id = :tenant
      AND key IN (SELECT key FROM idempotency_keys WHERE tenant_id = :tenant LIMIT :most)
"""


def _rows(statement: str) -> Step:
    prepared = text(statement)
    return lambda tx, values: tx.execute(prepared, values).rowcount


_OPEN = text("""
    SELECT id FROM jobs
    WHERE tenant_id = :tenant AND finished_at IS NULL AND state <> 'cancelling'
    ORDER BY id LIMIT 1
""")


def _cancel(tx: Tx, values: dict[str, Any]) -> int:
    """One job a transaction: locks are taken slices first, then the job."""
    found = tx.scalar(_OPEN, values)
    if found is not None:
        verbs.cancel(tx, found, values["tenant"])
    return found is not None


_ENDED = text("""
    SELECT id FROM (
        SELECT id, total, sum(total) OVER (ORDER BY id) AS filled
        FROM (SELECT id, total FROM jobs WHERE tenant_id = :tenant AND finished_at IS NOT NULL
              ORDER BY id LIMIT :most) AS oldest
    ) AS summed
    WHERE filled <= :most_items OR filled = total
""")
_LOCK_SLICES = text("""
    SELECT 1 FROM slices WHERE job_id = ANY(:jobs) ORDER BY job_id, start FOR UPDATE
""")
_LOCK_JOBS = text("""
    SELECT id FROM jobs WHERE id = ANY(:jobs) AND finished_at IS NOT NULL ORDER BY id FOR UPDATE
""")
_TO_ERASE = text("""
    INSERT INTO deletions (job_id, tenant_id, total)
    SELECT id, tenant_id, total FROM jobs WHERE id = ANY(:jobs)
    ON CONFLICT (job_id) DO UPDATE SET erased = 0
""")


def _delete(tx: Tx, values: dict[str, Any]) -> int:
    """Jobs that have ended, as the verb does it, many at a time."""
    bounds = {"most": _MOST_JOBS, "most_items": _MOST_ITEMS}
    found = tx.scalars(_ENDED, values | bounds).all()
    if not found:
        return 0
    tx.execute(_LOCK_SLICES, {"jobs": list(found)})
    ended: list[UUID] = list(tx.scalars(_LOCK_JOBS, {"jobs": list(found)}))
    tx.execute(_TO_ERASE, {"jobs": ended})
    deletion.delete_jobs(tx, ended)
    return len(ended)


_STEPS: tuple[Step, ...] = (
    _rows(_SILENCE),
    _rows(_UNSEND),
    *(
        _rows(f"DELETE FROM {table} WHERE tenant_id = :tenant")
        for table in ("webhook_secrets", "webhook_endpoints", "limits", "turns")
    ),
    _cancel,
    _delete,
    _rows(_EXPIRE_FILES),
    _rows(_FORGET_KEYS),
)
