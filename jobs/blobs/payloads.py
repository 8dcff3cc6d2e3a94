"""Payloads in the blob store: their keys, and the references to them in rows.

A row holds JSON or a reference, `@<key> <sha256> <bytes>`, which can't be JSON. Keys:
`in/<monday>/<fan>/<job>/<thousand>/<seq>-<hash>`, `out/…` and `pre/…` alike. A week or a job is one
prefix; no folder of a disk grows beyond some thousands; and since the name holds the payload's own
hash, owners of a slice, old and new, never write different bytes to one key.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from sys import maxsize
from typing import Any, Literal
from uuid import UUID

from jobs import vectors
from jobs.blobs.store import BlobStore, open_store
from jobs.errors import BlobStoreUnavailable, PayloadCorrupt, Unreadable

Side = Literal["in", "out", "pre"]
"""Inputs, outputs, or prepared inputs; each has its own retention."""

REFERENCE_MARK = "@"
REFERENCE = r"@([0-9a-z/-]+) ([0-9a-f]{64}) ([0-9]+)"
_REFERENCE = re.compile(REFERENCE)
_AT_ONCE = 16  # blobs under way for one job; each is in memory
_AHEAD_BYTES = 64 << 20  # read ahead


class Payloads:
    """Payloads of all jobs. over_bytes: longer ones go to the store, if any. Thread-safe."""

    def __init__(self, store: BlobStore | None = None, over_bytes: int = 65_536) -> None:
        self._store = store
        self.over_bytes = over_bytes if store else maxsize
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="blobs")

    @classmethod
    def connect(cls, address: str, over_kb: int, s3_endpoint: str = "") -> "Payloads":
        """Opens the blob store at `address` ("": none, payloads stay in rows). over_kb: larger
        payloads go into the store, KiB. Raises SettingsError where the address can't be used."""
        if not address:
            return cls()
        return cls(open_store(address, s3_endpoint), over_kb << 10)

    def stash(self, side: Side, job: UUID) -> "Stash":
        """Returns a writer of one job's payloads."""
        return Stash(self, side, job)

    def put_async(self, key: str, raw: bytes) -> "Future[None]":
        """Stores a blob in another thread."""
        return self._threads.submit(self._there().put, key, raw)

    def read(self, text: str) -> bytes:
        """Returns the payload of a reference. Raises Unreadable, BlobStoreUnavailable."""
        found = _REFERENCE.fullmatch(text)
        if found is None:
            raise PayloadCorrupt(f"{text[:100]!r} is no reference to a payload")
        key, digest, size = found.groups()
        raw = self._there().get(key)
        if len(raw) != int(size) or sha256(raw).hexdigest() != digest:
            raise PayloadCorrupt(
                f"the blob {key} is not what was stored: {len(raw)} bytes of {size}, "
                "or another SHA-256"
            )
        return raw

    def read_all(self, texts: Sequence[str]) -> list[bytes | Unreadable]:
        """Reads several payloads in their order; one that is lost or corrupt becomes its error.

        Raises BlobStoreUnavailable.
        """
        return list(self._threads.map(self._read_or_error, texts))

    def resolve_rows(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yields rows as `resolve_row` does, in their order, several read ahead."""
        ahead: list[Mapping[str, Any]] = []
        bytes_ahead = 0
        for row in rows:
            if (row["output"] or "").startswith(REFERENCE_MARK):
                bytes_ahead += int(row["output"].rpartition(" ")[2])
            elif not ahead:
                yield resolve_row(self, row)
                continue
            ahead.append(row)
            if len(ahead) >= _AT_ONCE or bytes_ahead > _AHEAD_BYTES:
                yield from self._threads.map(partial(resolve_row, self), ahead)
                ahead, bytes_ahead = [], 0
        yield from self._threads.map(partial(resolve_row, self), ahead)

    def _read_or_error(self, text: str) -> bytes | Unreadable:
        try:
            return self.read(text)
        except Unreadable as error:
            return error

    def delete(self, texts: Sequence[str]) -> None:
        """Deletes the payloads of references. Raises BlobStoreUnavailable; harmless to repeat."""
        keys = [text[1:].partition(" ")[0] for text in texts]
        if keys:
            list(self._threads.map(self._there().delete, keys))

    def delete_job(self, job: UUID) -> None:
        """Deletes all payloads of one job. Raises BlobStoreUnavailable; harmless to repeat."""
        if self._store is not None:
            for side in ("in", "out", "pre"):
                self._store.delete_prefix(job_prefix(side, job))

    def _there(self) -> BlobStore:
        if self._store is None:
            raise BlobStoreUnavailable(
                "the payload is in a blob store, and MILLRACE_BLOBS names none"
            )
        return self._store


class Stash:
    """Writer of one job's payloads, several at a time."""

    def __init__(self, payloads: Payloads, side: Side, job: UUID) -> None:
        self._payloads, self._job = payloads, job
        self._prefix = job_prefix(side, job)
        self._puts: deque[Future[None]] = deque()
        self._used = False

    def add(self, seq: int, raw: bytes) -> str:
        """Returns the reference of a payload, which is stored once `finish` has returned.

        Raises BlobStoreUnavailable for an earlier one.
        """
        self._used = True
        digest = sha256(raw).hexdigest()
        key = f"{self._prefix}{seq // 1000}/{seq}-{digest[:16]}"
        if len(self._puts) >= _AT_ONCE:
            self._puts.popleft().result()
        self._puts.append(self._payloads.put_async(key, raw))
        return f"@{key} {digest} {len(raw)}"

    def finish(self) -> None:
        """Waits until all are stored; raises BlobStoreUnavailable where one is not."""
        while self._puts:
            self._puts.popleft().result()

    def undo(self) -> None:
        """Deletes the job's payloads, if the store can be reached: no row refers to them."""
        wait(self._puts)
        if self._used:
            with suppress(BlobStoreUnavailable):
                self._payloads.delete_job(self._job)


def job_prefix(side: Side, job: UUID) -> str:
    """Returns the prefix of the keys of one job."""
    milliseconds = job.int >> 80
    day = datetime.fromtimestamp(milliseconds / 1000, UTC).date()
    monday = day - timedelta(days=day.weekday())
    return f"{side}/{monday:%Y%m%d}/{job.hex[-2:]}/{job.hex}/"


def resolve_row(payloads: Payloads, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a row of one item with payloads in place of references, and the JSON of a vector.

    A payload that is lost or corrupt is null, and the item's error says so where it is the output.
    Raises BlobStoreUnavailable.
    """
    changes: dict[str, Any] = {}
    if (row.get("output") or "").startswith(vectors.MARK):
        changes["output"] = vectors.as_json(row["output"])
    for column in ("input", "output"):
        if (row.get(column) or "").startswith(REFERENCE_MARK):
            try:
                changes[column] = payloads.read(row[column])
            except Unreadable as error:
                changes[column] = "null"
                if column == "output":
                    changes |= {"outcome": "failed", "error": error.as_result()}
    return {**row, **changes} if changes else row
