"""Fetch of one content from the blob store: hashed as it is written, and continued where an earlier
fetch was broken off."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from queue import SimpleQueue
from typing import Any

from jobs.artifacts.declared import Untrusted
from jobs.artifacts.push import blob_key
from jobs.blobs.store import BlobStore
from jobs.errors import PayloadLost

_BUFFER = 1 << 18  # stays in a core's cache


class FetchStopped(Exception):
    """A fetch was broken off; the next one goes on where it was."""


def fetch(
    store: BlobStore,
    digest: str,
    size: int,
    descriptor: int,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Writes a content to a file, which may have its beginning from an earlier fetch.

    Raises Untrusted where its SHA-256 is another one, and empties the file; FetchStopped once
    `stopped` is true; PayloadLost, BlobStoreUnavailable.
    """
    begun = os.fstat(descriptor).st_size
    if begun and _fetch(store, digest, size, descriptor, stopped):
        return
    # After a crash of the host the beginning may be anything.
    os.ftruncate(descriptor, 0)
    if not _fetch(store, digest, size, descriptor, stopped):
        os.ftruncate(descriptor, 0)
        raise Untrusted(
            f"the blob {blob_key(digest)} is not what was pushed: its SHA-256 is another one; "
            "push its folder again by `millrace models push --replace`"
        )


def _fetch(
    store: BlobStore, digest: str, size: int, descriptor: int, stopped: Callable[[], bool]
) -> bool:
    """Returns True if the file has the content now, on the disk. A thread copies range after range
    and syncs the file, while this one follows and hashes the ranges as they are in the file."""
    hashed, copied = sha256(), SimpleQueue[int | None]()
    begun = min(os.fstat(descriptor).st_size, size)
    os.ftruncate(descriptor, begun)

    def copy() -> None:
        """Tells where each range ends, then None. Raises PayloadLost and FetchStopped."""
        try:
            for start in range(begun, size, store.range_bytes):
                end = min(start + store.range_bytes, size)
                _copy_range(store, digest, size, start, end, descriptor)
                copied.put(end)
                if stopped():
                    raise FetchStopped(f"the fetch of {digest} was broken off")
            os.fsync(descriptor)
        finally:
            copied.put(None)

    with ThreadPoolExecutor(1, thread_name_prefix="fetch") as copier:
        copying = copier.submit(copy)
        _hash(hashed, descriptor, 0, begun)
        at = begun
        for end in iter(copied.get, None):
            _hash(hashed, descriptor, at, end)
            at = end
        copying.result()
    return hashed.hexdigest() == digest


def _copy_range(
    store: BlobStore, digest: str, size: int, start: int, end: int, descriptor: int
) -> None:
    done = store.copy_range(blob_key(digest), start, end - start, descriptor)
    if start + done < end:
        raise PayloadLost(
            f"the blob {blob_key(digest)} has {start + done} bytes, and {size} were pushed; push "
            "its folder again by `millrace models push --replace`"
        )


def _hash(hashed: Any, descriptor: int, start: int, end: int) -> None:
    """Adds a part of a file to a hash."""
    view = memoryview(bytearray(_BUFFER))
    while start < end:
        count = os.preadv(descriptor, [view[: end - start]], start)
        if not count:
            return  # the digest will differ
        hashed.update(view[:count])
        start += count
