"""Blobs in a folder, on a disk that all processes share."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO

from jobs import clock
from jobs.blobs.ranges import write_at
from jobs.errors import BlobStoreFull, BlobStoreUnavailable, PayloadLost, is_disk_full

_CHUNK = 1 << 20
_BUFFER = 1 << 18  # stays in a core's cache
_MARK = ".millrace-blobs"  # absent in the mount point of a disk that is not mounted


class FolderBlobs:
    """Stores each blob in a file: written under another name, synced, then renamed."""

    range_bytes = 16 << 20

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, data: bytes) -> None:
        """Implements `BlobStore.put`."""
        self.put_stream(key, BytesIO(data))

    def put_stream(self, key: str, source: IO[bytes]) -> None:
        """Implements `BlobStore.put_stream`."""
        path = self._root / key
        with _translate_errors(f"can't write {path}"):
            self._make_root()
            _make(path.parent)
            _write(path, source)

    def get(self, key: str) -> bytes:
        """Implements `BlobStore.get`."""
        path = self._root / key
        with self.open(key) as file, _translate_errors(f"can't read {path}"):
            return file.read()

    def open(self, key: str, start: int = 0) -> IO[bytes]:
        """Implements `BlobStore.open`."""
        path = self._root / key
        with _translate_errors(f"can't read {path}"):
            try:
                file = path.open("rb")
                file.seek(start)
                return file
            except FileNotFoundError:
                if (self._root / _MARK).exists():
                    raise PayloadLost(f"the blob {key} is gone") from None
                raise

    def size(self, key: str) -> int | None:
        """Implements `BlobStore.size`."""
        path = self._root / key
        with _translate_errors(f"can't read {path}"):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                return None

    def copy_range(self, key: str, start: int, length: int, descriptor: int) -> int:
        """Implements `BlobStore.copy_range`."""
        buffer, at, end = bytearray(_BUFFER), start, start + length
        view = memoryview(buffer)
        with self.open(key) as file:
            while at < end:
                with _translate_errors(f"can't read {self._root / key}"):
                    count = os.preadv(file.fileno(), [view[: end - at]], at)
                if not count:
                    break
                write_at(descriptor, view[:count], at)
                at += count
        return at - start

    def delete(self, key: str) -> None:
        """Implements `BlobStore.delete`."""
        path = self._root / key
        with _translate_errors(f"can't delete {path}"):
            path.unlink(missing_ok=True)
            for partial in path.parent.glob(f".{path.name}.*"):  # of a process that died
                partial.unlink(missing_ok=True)

    def delete_prefix(self, prefix: str) -> None:
        """Implements `BlobStore.delete_prefix`."""
        path = self._root / prefix
        with _translate_errors(f"can't delete {path}"), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def _make_root(self) -> None:
        mark = self._root / _MARK
        if not mark.exists():
            _make(self._root)
            mark.touch()


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = BlobStoreFull if is_disk_full(error) else BlobStoreUnavailable
        raise kind(f"{what}: {error.strerror}", retry_after_s=5) from error


def _write(path: Path, source: IO[bytes]) -> None:
    partial = path.with_name(f".{path.name}.{clock.random_bits(64):x}")
    try:
        with partial.open("xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _make(folder: Path) -> None:
    """Makes a folder and those above it, each synced into its parent."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
