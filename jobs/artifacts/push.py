"""Artifacts in the blob store: each content under its SHA-256, stored once."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import IO, cast

from jobs.artifacts import folder as folders
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import Manifest
from jobs.blobs.store import BlobStore

_AT_ONCE = 4


def blob_key(digest: str) -> str:
    """Returns the key of a content by its SHA-256 (hexadecimal)."""
    return f"artifacts/{digest[:2]}/{digest}"


def push(
    store: BlobStore, folder: Path, manifest: Manifest | None = None, *, replace: bool = False
) -> Manifest:
    """Stores the files of a folder that the store doesn't have, several at a time.

    manifest: of the folder, where it was read before. replace: stores all of them, over what is
    there. Raises Untrusted for what can't be in an artifact, or changed meanwhile;
    BlobStoreUnavailable.
    """
    manifest = manifest or folders.read(folder)
    paths = folders.list_files(folder)
    by_digest = {file.sha256: paths[file.path] for file in manifest.files}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="push") as threads:
        missing = by_digest if replace else _missing(store, manifest, by_digest, threads)
        for _ in threads.map(lambda digest: _put(store, digest, by_digest[digest]), missing):
            pass
    return manifest


def _missing(
    store: BlobStore, manifest: Manifest, paths: Mapping[str, Path], threads: ThreadPoolExecutor
) -> list[str]:
    sizes = threads.map(lambda digest: store.size(blob_key(digest)), paths)
    return [
        digest for digest, size in zip(paths, sizes, strict=True) if size != manifest.blobs[digest]
    ]


def _put(store: BlobStore, digest: str, path: Path) -> None:
    with path.open("rb") as file:
        reader = _HashingReader(file)
        store.put_stream(blob_key(digest), cast(IO[bytes], reader))
    if reader.hash.hexdigest() != digest:
        store.delete(blob_key(digest))
        raise Untrusted(f"{path} changed while it was stored; push the folder again")


class _HashingReader:
    """File that is hashed as it is read, from its beginning to its end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.hash = file, sha256()

    def read(self, size: int = -1) -> bytes:
        """Reads the next bytes."""
        chunk = self._file.read(size)
        self.hash.update(chunk)
        return chunk

    def seekable(self) -> bool:
        """Returns False: it is read once, in order."""
        return False
