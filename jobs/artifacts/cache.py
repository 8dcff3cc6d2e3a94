"""Cache of artifacts on one host: engines load from it, and from nowhere else.

    manifests/<id>   manifest of each artifact here; its time is that of the last use, a shared
                     lock on it (flock) means that a process has it loaded
    partial/<sha256> beginning of a content; an exclusive lock on it means that it is being fetched
    blobs/<sha256>   content, mode 0444: it was hashed while it was written
    snapshots/<id>/  files of an artifact under their names: hard links to blobs

<id> is the SHA-256 of the manifest, so that it covers the names of the files. All workers of the
host share the folder; a lock goes with the process that has it.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path

from jobs.artifacts.declared import Untrusted
from jobs.artifacts.fetch import fetch
from jobs.artifacts.manifest import Manifest
from jobs.blobs.store import BlobStore
from jobs.errors import InsufficientStorage, PayloadLost

_FETCHED_AT_ONCE = 2  # contents; each is read by several threads
_Stopped = Callable[[], bool]


class Snapshot:
    """Files of an artifact, complete and verified. They stay until `release`."""

    def __init__(self, path: Path, manifest: Manifest, lock: int) -> None:
        self.path, self.manifest, self._lock = path, manifest, lock

    def release(self) -> None:
        """Lets the cache evict it, once nobody else has it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class ArtifactCache:
    """Cache in a folder of its own. max_mb: bound of all contents, MiB; 0: none. Thread-safe."""

    def __init__(self, root: Path, store: BlobStore, max_mb: int = 0) -> None:
        self._root, self._store, self._max_bytes = root, store, max_mb << 20

    def stage(self, manifest: Manifest, stopped: _Stopped = lambda: False) -> Snapshot:
        """Returns the files of an artifact: what isn't here is fetched, what is here is hashed.

        Raises Untrusted where a content isn't what the manifest says, PayloadLost where it isn't
        whole, both with the file; InsufficientStorage where loaded artifacts leave no room;
        FetchStopped; BlobStoreUnavailable.
        """
        for name in ("manifests", "partial", "blobs", "snapshots"):
            (self._root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._pin(manifest)
        try:
            names = {file.sha256: file.path for file in reversed(manifest.files)}
            with ThreadPoolExecutor(_FETCHED_AT_ONCE, thread_name_prefix="stage") as threads:
                for _ in threads.map(
                    lambda digest: self._complete(
                        digest, manifest.blobs[digest], names[digest], stopped
                    ),
                    manifest.blobs,
                ):
                    pass
            return Snapshot(self._link(manifest), manifest, lock)
        except OSError as error:
            os.close(lock)
            where = error.filename or self._root
            raise InsufficientStorage(f"{where} can't be written: {error.strerror}") from error
        except BaseException:
            os.close(lock)
            raise

    # -- room

    def _pin(self, manifest: Manifest) -> int:
        """Makes room for an artifact, and returns the lock that keeps it here."""
        path = self._root / "manifests" / _id(manifest)
        with self._locked():
            self._make_room(path, manifest)
            if not path.exists():
                _write_new(path, manifest.as_json().encode())
            os.utime(path)
            lock = os.open(path, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_SH)
            return lock

    def _make_room(self, path: Path, manifest: Manifest) -> None:
        """Evicts the least recently used artifacts that nobody has loaded, until this one fits."""
        here = dict(self._manifests())
        here.pop(path, None)
        evicted = False
        for other in sorted(here, key=lambda other: other.stat().st_mtime_ns):
            if self._fits([*here.values(), manifest]):
                break
            if _evict(other):
                del here[other]
                evicted = True
        if evicted:
            self._sweep({path: manifest, **here})
        if not self._fits([*here.values(), manifest]):
            used_mb = sum(_contents(list(here.values())).values()) >> 20
            raise InsufficientStorage(
                f"the artifact {manifest.digest} takes {manifest.size >> 20} MiB: "
                f"MILLRACE_ARTIFACTS_MB is {self._max_bytes >> 20}, of which loaded artifacts take "
                f"{used_mb}; raise it, or load fewer versions on this host"
            )

    def _fits(self, manifests: list[Manifest]) -> bool:
        return not self._max_bytes or sum(_contents(manifests).values()) <= self._max_bytes

    def _manifests(self) -> Iterator[tuple[Path, Manifest]]:
        for path in (self._root / "manifests").iterdir():
            with suppress(Untrusted, ValueError):
                manifest = Manifest.from_json(path.read_text())
                if path.name == _id(manifest):
                    yield path, manifest
                    continue
            path.unlink(missing_ok=True)  # of a host that went down

    def _sweep(self, here: dict[Path, Manifest]) -> None:
        """Deletes what belongs to no manifest."""
        ids = {path.name for path in here}
        for snapshot in (self._root / "snapshots").iterdir():
            if snapshot.name not in ids:
                _remove_tree(snapshot)
        contents = _contents(list(here.values()))
        for name in ("blobs", "partial"):
            for path in (self._root / name).iterdir():
                if path.name not in contents:
                    path.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._root / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # -- contents

    def _complete(self, digest: str, size: int, name: str, stopped: _Stopped) -> None:
        """Sees that a content is here. name: of a file that has it, for messages."""
        blob = self._root / "blobs" / digest
        if blob.exists():
            if _is(blob, digest):
                return
            blob.unlink(missing_ok=True)
        partial = self._root / "partial" / digest
        descriptor = _open_locked(partial)
        try:
            if blob.exists():  # fetched by another process meanwhile
                partial.unlink()
                return
            fetch(self._store, digest, size, descriptor, stopped)
            os.fchmod(descriptor, 0o444)
            partial.rename(blob)
        except (Untrusted, PayloadLost) as error:
            raise type(error)(f"{name}: {error}") from error
        finally:
            os.close(descriptor)

    def _link(self, manifest: Manifest) -> Path:
        """Returns the snapshot, after making or mending it."""
        path = self._root / "snapshots" / _id(manifest)
        with self._locked():
            if not self._is_linked(path, manifest):
                fresh = path.with_name(f"{path.name}.new")
                _remove_tree(fresh)
                for file in manifest.files:
                    (fresh / file.path).parent.mkdir(parents=True, exist_ok=True)
                    os.link(self._root / "blobs" / file.sha256, fresh / file.path)
                for folder, _, _ in os.walk(fresh, topdown=False):
                    os.chmod(folder, 0o555)  # no bytecode beside the code
                _remove_tree(path)
                fresh.rename(path)
        return path

    def _is_linked(self, path: Path, manifest: Manifest) -> bool:
        """Returns True if a snapshot has these files, each a link to its blob, and nothing else."""
        found = {
            Path(base, name)
            for base, folders, names in os.walk(path)
            for name in (*names, *(one for one in folders if os.path.islink(f"{base}/{one}")))
        }
        if found != {path / file.path for file in manifest.files}:
            return False
        blobs = self._root / "blobs"
        return all(
            os.path.samestat((path / file.path).lstat(), (blobs / file.sha256).lstat())
            for file in manifest.files
        )


def _contents(manifests: list[Manifest]) -> dict[str, int]:
    """Returns the bytes of each content that these have."""
    return {digest: size for one in manifests for digest, size in one.blobs.items()}


def _id(manifest: Manifest) -> str:
    return sha256(manifest.as_json().encode()).hexdigest()


def _is(path: Path, digest: str) -> bool:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest() == digest
    except FileNotFoundError:  # another process found it broken
        return False


def _evict(manifest: Path) -> bool:
    """Deletes a manifest unless a process has its artifact loaded."""
    descriptor = os.open(manifest, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        manifest.unlink()
        return True
    finally:
        os.close(descriptor)


def _open_locked(path: Path) -> int:
    """Opens a file with an exclusive lock; waits for the process that has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # the other one is done: its file has another name now


def _write_new(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}")
    partial.write_bytes(content)
    partial.rename(path)


def _remove_tree(path: Path) -> None:
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)
