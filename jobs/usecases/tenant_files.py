"""Files of a tenant: their bytes in the blob store, written before their row becomes visible.

A process that dies in between leaves a row that nobody sees and that expires with its bytes, never
a visible row without bytes.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from os import SEEK_END
from typing import IO, Any
from uuid import UUID

from sqlalchemy import Engine as Database

from jobs import ids
from jobs.blobs.store import BlobStore, open_store
from jobs.errors import Conflict, QuotaExceeded
from jobs.identity import Limit
from jobs.settings import Settings
from jobs.store.billing import quota
from jobs.store.jobs import files
from jobs.store.jobs.files import FileRow
from jobs.store.tenancy import acting

_CHUNK = 1 << 20
UPLOAD_TIMEOUT_S = 6 * 3600.0
"""Longest time for storing the bytes of a file."""


def blob_store(settings: Settings) -> BlobStore:
    """Returns the store of files in this configuration; the same one each time."""
    return _opened(settings.files, settings.s3_endpoint)


_opened = cache(open_store)


def blob_key(id: UUID) -> str:
    """Returns the key of a file's bytes; no folder of a disk grows beyond some thousands."""
    return f"files/{id.hex[:6]}/{id.hex[-2:]}/{id.hex}"


def put(blobs: BlobStore, content: IO[bytes], id: UUID | None = None) -> dict[str, Any]:
    """Stores the bytes of a file in constant memory; returns id, bytes, sha256 and key.

    id: None: a new one. Raises BlobsAway.
    """
    id, digest = id or ids.new(), _digest(content)
    size = content.tell()
    content.seek(0)
    blobs.put_stream(blob_key(id), content)
    return {"id": id, "bytes": size, "sha256": digest, "key": blob_key(id)}


def _digest(content: IO[bytes]) -> bytes:
    """Reads a file from its beginning to its end."""
    digest = sha256()
    content.seek(0)
    while chunk := content.read(_CHUNK):
        digest.update(chunk)
    return digest.digest()


def add(
    database: Database,
    blobs: BlobStore,
    tenant: str,
    content: IO[bytes],
    *,
    purpose: str,
    filename: str,
    expires_in_s: float | None,
    limits: Sequence[Limit] = (),
    key_id: str = "",
    retries: bool = False,
) -> FileRow:
    """Stores a file that a tenant sent, and returns its row.

    limits, key_id: limits and API key (`key_…`) of the caller; retries: the same request was sent
    before, and may have stored it. Raises QuotaExceeded, BlobsAway.
    """
    id, size = ids.new(), content.seek(0, SEEK_END)
    digest = _digest(content) if retries else b""
    with acting(database, tenant) as tx:
        if retries:
            files.lock_upload(tx, tenant, digest)
            made = files.find_upload(
                tx, tenant, purpose=purpose, filename=filename, sha256=digest, key_id=key_id,
                within_s=UPLOAD_TIMEOUT_S,
            )  # fmt: skip
            if made:
                return made
        quota.check_file(tx, tenant, limits, size, lock=False)
        files.reserve(
            tx, tenant, id, purpose=purpose, filename=filename, key=blob_key(id), key_id=key_id,
            within_s=UPLOAD_TIMEOUT_S,
        )  # fmt: skip
    found = put(blobs, content, id)
    try:
        with acting(database, tenant) as tx:
            quota.check_file(tx, tenant, limits, size)
            files.lock_upload(tx, tenant, found["sha256"])
            row = files.complete(
                tx, tenant, id, bytes=size, sha256=found["sha256"], expires_in_s=expires_in_s
            )
    except QuotaExceeded:
        with acting(database, tenant) as tx:
            files.abandon(tx, tenant, id)
        raise
    if row is None:
        blobs.delete(found["key"])
        raise Conflict("the file was removed while it was stored")
    return row
