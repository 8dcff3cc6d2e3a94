"""The audit log: every admin act, every verb on a tenant's jobs, and every read of another
tenant's payloads.

An entry is written in the transaction of its act, so that neither is there without the other. The
roles of processes may only add entries. No input of a client and no secret belongs into it: ids,
names, states. The database links entries to a hash chain (jobs/store/tenants/audit_chain.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import insert, or_, select

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.tables import audit


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act."""

    id: int  #: number that grows with time
    at: datetime  #: time of the act
    tenant_id: str  #: tenant that it concerns; "*": all
    actor: str  #: a key's id, a token's subject, "cli" or "loopback"
    act: str  #: `job.cancel`, `key.create`, …
    target: str  #: id or name of its object
    detail: str  #: JSON object
    request_id: str  #: id of the HTTP request


def record(
    tx: Tx, *, tenant: str, actor: str, act: str, target: str,
    detail: Mapping[str, Any] | None = None, request_id: str,
) -> None:  # fmt: skip
    """Adds an entry; see AuditEntry for the values."""
    json = orjson.dumps(detail or {}).decode()
    values = {"tenant_id": tenant, "actor": actor, "act": act, "target": target, "detail": json}
    tx.execute(insert(audit).inline().values(values | {"request_id": request_id}))


def page(
    tx: Tx,
    tenant: str,
    *,
    after: int | None,
    limit: int,
    actor: str = "",
    act: str = "",
    target: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[AuditEntry]:
    """Lists entries, newest first; what is empty or None asks for nothing.

    tenant: one, or EVERYBODY; after: the id of the last entry of the page before; act:
    `job.cancel`, or `job` for all of that kind.
    """
    query = select(*queries.columns(AuditEntry, audit)).where(
        queries.is_own_or_all(audit, tenant), queries.equal(audit, actor=actor, target=target)
    )
    if act:
        query = query.where(or_(audit.c.act == act, audit.c.act.like(f"{act}.%")))
    if since:
        query = query.where(audit.c.at >= since)
    if until:
        query = query.where(audit.c.at < until)
    return queries.many(tx, AuditEntry, queries.page(query, audit.c.id, after, limit))
