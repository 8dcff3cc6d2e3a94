"""The audit log: every admin act, and every verb on what is a tenant's; written in the transaction
of the act, so that neither is there without the other. The roles of processes may only add to it.

Nothing that a client sent in, and no secret, belongs into it: ids, names of things, states.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import RowMapping, text

from jobs.store.db import Tx

_NOTE = text("""
    INSERT INTO audit (tenant_id, actor, act, target, detail, request_id)
    VALUES (:tenant, :actor, :act, :target, :detail, :request_id)
""")


def record(
    tx: Tx, *, tenant: str, actor: str, act: str, target: str,
    detail: Mapping[str, Any] | None = None, request_id: str,
) -> None:  # fmt: skip
    """One act. tenant: whose things it was done to, "*" where everybody's; actor: a key's id, a
    token's subject, "cli" or "loopback"; act: `job.cancel`, …; target: what it was done to."""
    values = {"tenant": tenant, "actor": actor, "act": act, "target": target}
    told = orjson.dumps(detail or {}).decode()
    tx.execute(_NOTE, values | {"detail": told, "request_id": request_id})


_PAGE = text("""
    SELECT * FROM audit
    WHERE (:tenant = '*' OR tenant_id = :tenant) AND (CAST(:after AS bigint) IS NULL OR id < :after)
      AND (:actor = '' OR actor = :actor) AND (:act = '' OR act = :act OR act LIKE :act || '.%')
      AND (:target = '' OR target = :target)
      AND (CAST(:since AS timestamptz) IS NULL OR at >= :since)
      AND (CAST(:until AS timestamptz) IS NULL OR at < :until)
    ORDER BY id DESC LIMIT :limit
""")


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
) -> list[RowMapping]:
    """Newest first; tenant: "*" for everybody's; after: the id of the last of the page before;
    act: `job.cancel`, or `job` for all of that kind; what is empty or None asks for nothing."""
    values = {"tenant": tenant, "after": after, "limit": limit, "since": since, "until": until}
    asked = {"actor": actor, "act": act, "target": target}
    return list(tx.execute(_PAGE, values | asked).mappings())
