"""Artifacts from a folder into both blob stores, and from there into the cache of a host."""

import multiprocessing
import os
import signal
import stat
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

import pytest

from jobs.artifacts import folder
from jobs.artifacts.cache import ArtifactCache
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.fetch import FetchStopped
from jobs.artifacts.manifest import Manifest
from jobs.artifacts.push import blob_key, push
from jobs.blobs import s3
from jobs.blobs.folder import FolderBlobs
from jobs.blobs.s3 import S3Blobs
from jobs.blobs.store import BlobStore
from jobs.errors import BlobStoreUnavailable, InsufficientStorage, PayloadLost
from tests.support import signing
from tests.support.wait import eventually

PART_BYTES = 5 << 20  # the least that S3 takes
RANGE_BYTES = 2 * PART_BYTES
LARGE = Random(1).randbytes(2 * RANGE_BYTES + 5)
FILES = {"model.safetensors": LARGE, "config.json": b"{}", "sub/copy.json": b"{}", "empty": b""}
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_PART_BYTES", PART_BYTES)
    for store in (S3Blobs, FolderBlobs):
        monkeypatch.setattr(store, "range_bytes", RANGE_BYTES)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return signing.write_tree(tmp_path / "model", FILES)


@pytest.fixture
def cache(tmp_path: Path, store: BlobStore) -> ArtifactCache:
    return ArtifactCache(tmp_path / "cache", store)


def starts(counting: "Counting", manifest: Manifest) -> int:
    """Begin of the first range of the large file that was read."""
    large = blob_key(manifest.digests["model.safetensors"])
    return min(start for key, start in counting.read if key == large)


class Counting:
    """Counts what is read from a store. fails_at: start of ranges that can't be read once."""

    def __init__(self, store: BlobStore, fails_at: int = -1) -> None:
        self.store, self.read = store, list[tuple[str, int]]()
        self._fails_at = fails_at

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def copy_range(self, key: str, start: int, length: int, descriptor: int) -> int:
        self.read.append((key, start))
        if start == self._fails_at:
            self._fails_at = -1
            raise BlobStoreUnavailable("away for a moment")
        return self.store.copy_range(key, start, length, descriptor)


def test_what_was_pushed_is_staged(model: Path, store: BlobStore, cache: ArtifactCache) -> None:
    manifest = push(store, model)
    snapshot = cache.stage(manifest)
    assert folder.read(snapshot.path) == manifest
    for name, content in FILES.items():
        path = snapshot.path / name
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert stat.S_IMODE((snapshot.path / "sub").stat().st_mode) == 0o555


def test_what_is_there_is_not_moved_again(model: Path, store: BlobStore, tmp_path: Path) -> None:
    manifest = push(store, model)
    puts = list[str]()
    monkeyed = Counting(store)
    monkeyed.put_stream = lambda key, source: puts.append(key)  # type: ignore[attr-defined]
    assert push(monkeyed, model) == manifest  # type: ignore[arg-type]
    assert puts == []
    ArtifactCache(tmp_path / "cache", store).stage(manifest)
    ArtifactCache(tmp_path / "cache", monkeyed).stage(manifest)  # type: ignore[arg-type]
    assert monkeyed.read == []


def test_a_forged_blob_is_never_staged(model: Path, store: BlobStore, cache: ArtifactCache) -> None:
    manifest = push(store, model)
    digest = manifest.digests["model.safetensors"]
    flipped = bytearray(LARGE)
    flipped[-1] ^= 1
    for content in (bytes(flipped), LARGE[:-1]):
        store.put(blob_key(digest), content)
        with pytest.raises((Untrusted, PayloadLost), match=digest):
            cache.stage(manifest)
    store.put(blob_key(digest), LARGE + b"x")  # what is beyond the signed size is never read
    push(store, model, replace=True)
    assert (cache.stage(manifest).path / "model.safetensors").read_bytes() == LARGE


def test_an_entry_that_was_changed_on_disk_is_fetched_again(
    model: Path, store: BlobStore, cache: ArtifactCache, tmp_path: Path
) -> None:
    manifest = push(store, model)
    path = cache.stage(manifest).path
    blob = tmp_path / "cache" / "blobs" / manifest.digests["model.safetensors"]
    blob.chmod(0o644)
    with blob.open("r+b") as file:
        file.write(b"tampered")
    path.chmod(0o755)
    (path / "extra.py").write_text("pass\n")
    assert folder.read(cache.stage(manifest).path) == manifest


def test_other_names_of_the_same_contents_have_a_snapshot_of_their_own(
    store: BlobStore, cache: ArtifactCache, tmp_path: Path
) -> None:
    ones = [signing.write_tree(tmp_path / name, {name: b"same"}) for name in ("a", "b")]
    first, second = (cache.stage(push(store, one)) for one in ones)
    assert first.manifest.digest == second.manifest.digest
    assert [os.listdir(one.path) for one in (first, second)] == [["a"], ["b"]]


class TestResuming:
    def test_a_fetch_that_was_stopped_goes_on_where_it_was(
        self, model: Path, store: BlobStore, tmp_path: Path
    ) -> None:
        manifest = push(store, model)
        counting = Counting(store)
        cache = ArtifactCache(tmp_path / "cache", counting)  # type: ignore[arg-type]
        partial = tmp_path / "cache" / "partial" / manifest.digests["model.safetensors"]

        def has_begun() -> bool:
            return partial.exists() and partial.stat().st_size >= store.range_bytes

        with pytest.raises(FetchStopped):
            cache.stage(manifest, has_begun)
        assert store.range_bytes <= (done := partial.stat().st_size) < len(LARGE)
        counting.read.clear()
        cache.stage(manifest)
        assert starts(counting, manifest) == done

    def test_a_failed_range_is_resumed(self, model: Path, store: BlobStore, tmp_path: Path) -> None:
        manifest = push(store, model)
        failing = Counting(store, fails_at=store.range_bytes)
        cache = ArtifactCache(tmp_path / "cache", failing)  # type: ignore[arg-type]
        with pytest.raises(BlobStoreUnavailable):
            cache.stage(manifest)
        failing.read.clear()
        assert folder.read(cache.stage(manifest).path) == manifest
        assert starts(failing, manifest) == store.range_bytes

    def test_a_fetch_of_a_killed_process_is_continued(self, model: Path, tmp_path: Path) -> None:
        store = FolderBlobs(tmp_path / "blobs")
        manifest = push(store, model)
        partial = tmp_path / "cache" / "partial" / manifest.digests["model.safetensors"]
        child = multiprocessing.get_context("spawn").Process(
            target=_stage_and_hang, args=(tmp_path, manifest.as_json())
        )
        child.start()
        try:
            eventually(lambda: partial.exists() and partial.stat().st_size >= RANGE_BYTES)
        finally:
            child.kill()
            child.join()
        done = partial.stat().st_size
        counting = Counting(store)
        cache = ArtifactCache(tmp_path / "cache", counting)  # type: ignore[arg-type]
        assert folder.read(cache.stage(manifest).path) == manifest
        assert starts(counting, manifest) == done

    def test_a_beginning_that_is_garbage_is_fetched_again(
        self, model: Path, store: BlobStore, cache: ArtifactCache, tmp_path: Path
    ) -> None:
        manifest = push(store, model)
        for name, garbage in (("model.safetensors", b"\0" * RANGE_BYTES), ("empty", b"no")):
            path = tmp_path / "cache" / "partial" / manifest.digests[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(garbage)
        assert folder.read(cache.stage(manifest).path) == manifest


def _stage_and_hang(tmp_path: Path, manifest: str) -> None:
    """Fetches one range, and then waits for its death."""
    FolderBlobs.range_bytes = RANGE_BYTES
    store = FolderBlobs(tmp_path / "blobs")
    copy = store.copy_range

    def copy_range(key: str, start: int, length: int, descriptor: int) -> int:
        if start:
            signal.pause()
        return copy(key, start, length, descriptor)

    store.copy_range = copy_range  # type: ignore[method-assign]
    ArtifactCache(tmp_path / "cache", store).stage(Manifest.from_json(manifest))


class TestRoom:
    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return FolderBlobs(tmp_path / "blobs")

    @pytest.fixture
    def pushed(self, store: BlobStore, tmp_path: Path) -> Callable[[str, int], Manifest]:
        def push_one(name: str, size_mb: int) -> Manifest:
            content = Random(name).randbytes(size_mb * MIB)
            return push(store, signing.write_tree(tmp_path / name, {name: content}))

        return push_one

    def _here(self, cache: Path) -> set[str]:
        return {name for path in (cache / "snapshots").iterdir() for name in os.listdir(path)}

    def test_the_least_recently_used_is_evicted_and_never_a_loaded_one(
        self, store: BlobStore, tmp_path: Path, pushed: Callable[[str, int], Manifest]
    ) -> None:
        cache = ArtifactCache(tmp_path / "cache", store, max_mb=4)
        a, b, c, d = (pushed(name, size) for name, size in zip("abcd", (1, 1, 2, 2), strict=True))
        loaded = cache.stage(a)
        cache.stage(b).release()
        cache.stage(c).release()
        cache.stage(b).release()
        cache.stage(d).release()
        assert self._here(tmp_path / "cache") == {"a", "b", "d"}
        blobs = sum(path.stat().st_size for path in (tmp_path / "cache" / "blobs").iterdir())
        assert blobs <= 4 * MIB
        with pytest.raises(InsufficientStorage, match="MILLRACE_ARTIFACTS_MB is 4"):
            cache.stage(pushed("large", 4))
        loaded.release()
        cache.stage(pushed("large", 4))
        assert self._here(tmp_path / "cache") == {"large"}

    def test_contents_that_another_artifact_shares_stay(
        self, store: BlobStore, tmp_path: Path, pushed: Callable[[str, int], Manifest]
    ) -> None:
        cache = ArtifactCache(tmp_path / "cache", store, max_mb=3)
        a = pushed("a", 1)
        shared = signing.write_tree(tmp_path / "x", {"w": (tmp_path / "a" / "a").read_bytes()})
        (shared / "more").write_bytes(b"1" * MIB)
        both = push(store, shared)
        cache.stage(a).release()
        held = cache.stage(both)
        cache.stage(pushed("b", 1)).release()
        assert folder.read(held.path) == both

    def test_what_a_killed_fetch_left_is_evicted_too(
        self, store: BlobStore, tmp_path: Path, pushed: Callable[[str, int], Manifest]
    ) -> None:
        cache = ArtifactCache(tmp_path / "cache", store, max_mb=2)
        a = pushed("a", 1)
        with pytest.raises(FetchStopped):
            cache.stage(a, lambda: True)
        assert os.listdir(tmp_path / "cache" / "partial")
        cache.stage(pushed("b", 2))
        assert os.listdir(tmp_path / "cache" / "partial") == []


def test_processes_that_stage_the_same_share_one_fetch(model: Path, tmp_path: Path) -> None:
    manifest = push(FolderBlobs(tmp_path / "blobs"), model)
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        staged = list(pool.map(_stage, [tmp_path] * 3, [manifest.as_json()] * 3))
    assert staged == [manifest] * 3
    assert os.listdir(tmp_path / "cache" / "partial") == []


def _stage(tmp_path: Path, manifest: str) -> Manifest:
    cache = ArtifactCache(tmp_path / "cache", FolderBlobs(tmp_path / "blobs"), max_mb=80)
    return folder.read(cache.stage(Manifest.from_json(manifest)).path)
