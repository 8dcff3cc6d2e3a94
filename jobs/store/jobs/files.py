"""Rows of tenants' files; their bytes lie in the blob store (jobs/usecases/tenant_files.py)."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.store.db import Tx

_ANNOUNCE = text("""
    INSERT INTO files (id, tenant_id, purpose, filename, bytes, sha256, key, key_id, expires_at,
                       complete)
    VALUES (:id, :tenant, :purpose, :filename, 0, '', :key, :key_id,
            now() + make_interval(secs => :within_s), false)
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at WHERE NOT files.complete
""")
_COMPLETE = text("""
    UPDATE files
    SET bytes = :bytes, sha256 = :sha256, created_at = now(), complete = true,
        expires_at = now() + make_interval(secs => :expires_in_s)
    WHERE id = :id AND tenant_id = :tenant AND NOT complete
    RETURNING *
""")
_GIVE_UP = text("""
    UPDATE files SET expires_at = now() WHERE id = :id AND tenant_id = :tenant AND NOT complete
""")
_GET = text("""
    SELECT * FROM files
    WHERE id = :id AND tenant_id = :tenant AND complete
      AND (expires_at IS NULL OR expires_at > now())
""")
_PAGE = """
    SELECT * FROM files
    WHERE tenant_id = :tenant AND complete AND (expires_at IS NULL OR expires_at > now())
      AND (CAST(:purpose AS text) IS NULL OR purpose = :purpose)
      AND (CAST(:after AS uuid) IS NULL OR id {beyond} :after)
    ORDER BY id {order} LIMIT :limit
"""
_NEWEST_FIRST = text(_PAGE.format(beyond="<", order="DESC"))
_OLDEST_FIRST = text(_PAGE.format(beyond=">", order="ASC"))
_DELETE = text("""
    UPDATE files SET expires_at = now()
    WHERE id = :id AND tenant_id = :tenant AND complete
      AND (expires_at IS NULL OR expires_at > now())
""")
_EXPIRED = text("""
    DELETE FROM files WHERE id IN (
        SELECT id FROM files WHERE expires_at <= :at
        ORDER BY expires_at LIMIT :most FOR UPDATE SKIP LOCKED)
    RETURNING key
""")


def reserve(
    tx: Tx, tenant: str, id: UUID, *, purpose: str, filename: str, key: str, key_id: str,
    within_s: float,
) -> None:  # fmt: skip
    """A file whose bytes are about to be stored, perhaps not for the first time: nobody sees it,
    and it expires, with whatever was stored of it, unless it is complete within_s. key_id: of the
    API key that it came by."""
    values = {"id": id, "tenant": tenant, "purpose": purpose, "filename": filename}
    tx.execute(_ANNOUNCE, values | {"key": key, "key_id": key_id, "within_s": within_s})


def complete(
    tx: Tx, tenant: str, id: UUID, *, bytes: int, sha256: bytes, expires_in_s: float | None
) -> RowMapping | None:
    """Its row, now that its bytes are there; None: it is gone."""
    values = {"id": id, "tenant": tenant, "bytes": bytes, "sha256": sha256}
    found = tx.execute(_COMPLETE, values | {"expires_in_s": expires_in_s})
    return found.mappings().one_or_none()


def abandon(tx: Tx, tenant: str, id: UUID) -> None:
    """One that won't be complete: what was stored of it goes."""
    tx.execute(_GIVE_UP, {"id": id, "tenant": tenant})


def get(tx: Tx, tenant: str, id: UUID) -> RowMapping | None:
    """Of a file that is there and has not expired."""
    return tx.execute(_GET, {"id": id, "tenant": tenant}).mappings().one_or_none()


def page(
    tx: Tx, tenant: str, *, purpose: str | None, after: UUID | None, limit: int, newest: bool = True
) -> list[RowMapping]:
    """after: the id of the last file of the page before."""
    values = {"tenant": tenant, "purpose": purpose, "after": after, "limit": limit}
    return list(tx.execute(_NEWEST_FIRST if newest else _OLDEST_FIRST, values).mappings())


def delete(tx: Tx, tenant: str, id: UUID) -> bool:
    """From the commit on it has expired: its row and its blob go together. False: no such file."""
    return tx.execute(_DELETE, {"id": id, "tenant": tenant}).rowcount > 0


def delete_expired(tx: Tx, at: datetime, most: int = 100) -> Collection[str]:
    """Deletes the rows of what expired by then; returns the keys of its blobs, which the caller
    deletes before it commits."""
    return tx.scalars(_EXPIRED, {"at": at, "most": most}).all()
