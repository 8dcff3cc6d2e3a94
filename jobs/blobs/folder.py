"""Blobs in a folder, on a disk that every process of the platform sees."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO

from jobs import clock
from jobs.errors import BlobStoreUnavailable, PayloadLost

_CHUNK = 1 << 20
_MARK = ".millrace-blobs"  # tells the folder from the mount point of a disk that is not there


class FolderBlobs:
    """A file a blob. Written beside its place, synced, then renamed: it is there whole, or not."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, data: bytes) -> None:
        self.put_stream(key, BytesIO(data))

    def put_stream(self, key: str, source: IO[bytes]) -> None:
        path = self._root / key
        with _away(f"can't write {path}"):
            self._make_root()
            _make(path.parent)
            _write(path, source)

    def get(self, key: str) -> bytes:
        path = self._root / key
        with self.open(key) as file, _away(f"can't read {path}"):
            return file.read()

    def open(self, key: str) -> IO[bytes]:
        path = self._root / key
        with _away(f"can't read {path}"):
            try:
                return path.open("rb")
            except FileNotFoundError:
                if (self._root / _MARK).exists():
                    raise PayloadLost(f"the blob {key} is gone") from None
                raise

    def delete(self, key: str) -> None:
        path = self._root / key
        with _away(f"can't delete {path}"):
            path.unlink(missing_ok=True)
            for beside in path.parent.glob(f".{path.name}.*"):  # of who died while it wrote
                beside.unlink(missing_ok=True)

    def delete_prefix(self, prefix: str) -> None:
        path = self._root / prefix
        with _away(f"can't delete {path}"), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def _make_root(self) -> None:
        mark = self._root / _MARK
        if not mark.exists():
            _make(self._root)
            mark.touch()


@contextmanager
def _away(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BlobStoreUnavailable(f"{what}: {error.strerror}", retry_after_s=5) from error


def _write(path: Path, source: IO[bytes]) -> None:
    beside = path.with_name(f".{path.name}.{clock.random_bits(64):x}")
    try:
        with beside.open("xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _make(folder: Path) -> None:
    """A folder and those above it, each synced into its parent."""
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
