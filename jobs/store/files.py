"""Files: what is known of them. Their bytes lie in the blob store (jobs/files.py)."""

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.store.db import Tx

_INSERT = text("""
    INSERT INTO files (id, tenant_id, purpose, filename, bytes, sha256, key, key_id, expires_at)
    VALUES (:id, :tenant, :purpose, :filename, :bytes, :sha256, :key, :key_id,
            now() + make_interval(secs => :expires_in_s))
    RETURNING *
""")
_GET = text("""
    SELECT * FROM files
    WHERE id = :id AND tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now())
""")
_PAGE = """
    SELECT * FROM files
    WHERE tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now())
      AND (CAST(:purpose AS text) IS NULL OR purpose = :purpose)
      AND (CAST(:after AS uuid) IS NULL OR id {beyond} :after)
    ORDER BY id {order} LIMIT :limit
"""
_NEWEST_FIRST = text(_PAGE.format(beyond="<", order="DESC"))
_OLDEST_FIRST = text(_PAGE.format(beyond=">", order="ASC"))
_DELETE = text("DELETE FROM files WHERE id = :id AND tenant_id = :tenant RETURNING key")
_EXPIRED = text("""
    DELETE FROM files WHERE id IN (
        SELECT id FROM files WHERE expires_at <= :at
        ORDER BY expires_at LIMIT :most FOR UPDATE SKIP LOCKED)
    RETURNING key
""")


def insert(
    tx: Tx,
    tenant: str,
    id: UUID,
    *,
    purpose: str,
    filename: str,
    bytes: int,
    sha256: bytes,
    key: str,
    expires_in_s: float | None,
    key_id: str = "",
) -> RowMapping:
    """Its row. key: of its blob; key_id: of the API key that it came by."""
    values: dict[str, Any] = {
        "id": id,
        "tenant": tenant,
        "purpose": purpose,
        "filename": filename,
        "bytes": bytes,
        "sha256": sha256,
        "key": key,
        "expires_in_s": expires_in_s,
        "key_id": key_id,
    }
    return tx.execute(_INSERT, values).mappings().one()


def get(tx: Tx, tenant: str, id: UUID) -> RowMapping | None:
    """Of a file that is there and has not expired."""
    return tx.execute(_GET, {"id": id, "tenant": tenant}).mappings().one_or_none()


def page(
    tx: Tx, tenant: str, *, purpose: str | None, after: UUID | None, limit: int, newest: bool = True
) -> list[RowMapping]:
    """after: the id of the last file of the page before."""
    values = {"tenant": tenant, "purpose": purpose, "after": after, "limit": limit}
    return list(tx.execute(_NEWEST_FIRST if newest else _OLDEST_FIRST, values).mappings())


def delete(tx: Tx, tenant: str, id: UUID) -> str | None:
    """The key of its blob, which the caller deletes once this is committed; None: no such file."""
    return tx.scalars(_DELETE, {"id": id, "tenant": tenant}).one_or_none()


def forget_expired(tx: Tx, at: datetime, most: int = 100) -> Collection[str]:
    """Deletes what expired by then; returns the keys of its blobs."""
    return tx.scalars(_EXPIRED, {"at": at, "most": most}).all()
