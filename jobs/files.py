"""Files of a tenant: their bytes in the blob store, written before their row, deleted after it.

A process that dies in between leaves bytes that no row names, never a row without its bytes.
"""

from hashlib import sha256
from typing import IO, Any
from uuid import UUID

from jobs import ids
from jobs.blobs.store import BlobStore

_CHUNK = 1 << 20


def key_of(id: UUID) -> str:
    """Where a file's bytes lie: no folder of a disk grows beyond some thousands."""
    return f"files/{id.hex[:6]}/{id.hex[-2:]}/{id.hex}"


def put(blobs: BlobStore, content: IO[bytes], id: UUID | None = None) -> dict[str, Any]:
    """Stores the bytes of a new file, in constant memory. Returns what `jobs.store.files.insert`
    needs of them: id, bytes, sha256, key. id: where it is known before. Raises BlobsAway."""
    id, digest, size = id or ids.new(), sha256(), 0
    content.seek(0)
    while chunk := content.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    content.seek(0)
    blobs.put_stream(key_of(id), content)
    return {"id": id, "bytes": size, "sha256": digest.digest(), "key": key_of(id)}
