"""Artifacts that were tampered with, and the speed of their fetch.

Every byte of a small artifact is flipped in turn, in the blob store and in the cache of a host; its
manifest and its signature are mutated 10,000 times each. What is staged, as before a load, must be
what was signed. Then an artifact is fetched into an empty cache, in turn with a plain copy.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from jobs import clock
from jobs.artifacts import bundle, trust
from jobs.artifacts.cache import ArtifactCache
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import Manifest
from jobs.artifacts.push import blob_key, push
from jobs.artifacts.trust import Trust
from jobs.blobs.folder import FolderBlobs
from jobs.errors import MillraceError
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

ASKED = ("tampered_loaded <= 0", "fetch_vs_copy >= 0.8")

_FILES = {
    "config.json": b'{"layers": 1, "heads": 2}\n',
    "model.safetensors": bytes(range(256)) * 2,
    "tokenizer/tokenizer.json": b'{"a": 0, "b": 1}\n',
    "load.py": b"def load():\n    return None\n",
}
_MUTATIONS = 10_000  # of the manifest, and of the signature
_LARGE_MB = 256  # of each of two files
_ROUNDS = 5


@dataclass(frozen=True)
class _Signed:
    """A small artifact in a store, with its signature."""

    store: FolderBlobs
    manifest: Manifest
    signature: str
    trust: Trust

    def loads(self, cache: Path, manifest: str, signature: str) -> dict[str, bytes] | None:
        """Returns what an engine would load, as a worker stages it; None: it is refused."""
        try:
            read = Manifest.from_json(manifest)
            if read.digest != self.manifest.digest:  # to which the registry binds the version
                return None
            self.trust.check(read, [signature])
            snapshot = ArtifactCache(cache, self.store).stage(read)
        except (Untrusted, MillraceError):
            return None
        try:
            files = (path for path in snapshot.path.rglob("*") if path.is_file())
            return {path.relative_to(snapshot.path).as_posix(): path.read_bytes() for path in files}
        finally:
            snapshot.release()


def measure(report: Report, scale: Scale) -> None:
    """Tampers with bytes, manifest and signature; then fetches and copies in turn."""
    with TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        signed = _sign(folder)
        text = signed.manifest.as_json()
        if signed.loads(folder / "cache", text, signed.signature) != _FILES:
            raise ValueError("the untouched artifact is refused")
        flipped = _flip_in_store(signed, folder) + _flip_in_cache(signed, folder)
        mutations = int(scale.seconds(_MUTATIONS))
        say(f"{mutations} mutations of the manifest, and of the signature")
        manifests = sum(
            _is_tampered(signed.loads(folder / "cache", mutated, signed.signature))
            for mutated in _mutated(text, mutations)
        )
        signatures = sum(
            signed.loads(folder / "cache", text, mutated) is not None
            for mutated in _mutated(signed.signature, mutations)
        )
        report.add(
            tampered_bytes=2 * signed.manifest.size,
            tampered_manifests=mutations,
            tampered_signatures=mutations,
            tampered_loaded=flipped + manifests + signatures,
        )
        _measure_fetch(report, folder, max(8, int(scale.seconds(_LARGE_MB))))


def _sign(folder: Path) -> _Signed:
    for name, content in _FILES.items():
        path = folder / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "key.pub").write_bytes(public)
    policy = 'policy = "require"\n[[key]]\nname = "bench"\nfile = "key.pub"\n'
    (folder / "trust.toml").write_text(policy)
    store = FolderBlobs(folder / "blobs")
    manifest = push(store, folder / "model")
    signature = bundle.sign(manifest, "bench", key)
    return _Signed(store, manifest, signature, trust.read(folder / "trust.toml"))


def _is_tampered(loaded: dict[str, bytes] | None) -> bool:
    """Returns True for what may not be loaded: anything but what was signed."""
    return loaded is not None and loaded != _FILES


def _flip_in_store(signed: _Signed, folder: Path) -> int:
    """Flips every byte in the blob store; returns how often something wrong loads."""
    say(f"{signed.manifest.size} bytes flipped in the blob store, and as many in a cache")
    found = 0
    for digest, size in signed.manifest.blobs.items():
        blob = folder / "blobs" / blob_key(digest)
        for at in range(size):
            with _flipped(blob, at):
                text = signed.manifest.as_json()
                shutil.rmtree(folder / "fresh", ignore_errors=True)
                found += signed.loads(folder / "fresh", text, signed.signature) is not None
    return found


def _flip_in_cache(signed: _Signed, folder: Path) -> int:
    """Flips every byte in the cache, where it must be fetched again."""
    cache, text, found = folder / "cache", signed.manifest.as_json(), 0
    for digest, size in signed.manifest.blobs.items():
        for at in range(size):
            blob = cache / "blobs" / digest
            blob.chmod(0o600)
            _flip(blob, at)
            found += signed.loads(cache, text, signed.signature) != _FILES
    return found


class _flipped:  # noqa: N801
    """Context in which one byte of a file is another one."""

    def __init__(self, path: Path, at: int) -> None:
        self._path, self._at = path, at

    def __enter__(self) -> None:
        _flip(self._path, self._at)

    def __exit__(self, *_: object) -> None:
        _flip(self._path, self._at)


def _flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def _mutated(text: str, count: int) -> Iterator[str]:
    """Yields variants of a JSON text that mean something else, or nothing."""
    random, meant = Random(7), json.loads(text)
    while count:
        mutated = _mutate(random, text)
        try:
            same = json.loads(mutated) == meant
        except ValueError:
            same = False
        if not same:
            count -= 1
            yield mutated


def _mutate(random: Random, text: str) -> str:
    at, other = sorted(random.choices(range(len(text)), k=2))
    piece = text[at : min(other, at + 64)]
    mark = chr(random.randrange(32, 127))
    return random.choice(
        (
            text[:at] + mark + text[at + 1 :],
            text[:at] + mark + text[at:],
            text[:at] + text[at + 1 :],
            text[:at] + text[at + len(piece) :],
            text[:at] + piece + text[at:],
            text[:at],
            text[:other] + piece + text[other + len(piece) :],
        )
    )


def _measure_fetch(report: Report, folder: Path, size_mb: int) -> None:
    """Fetches and copies the same files in turn; both are on the disk at the end."""
    large = folder / "large"
    large.mkdir()
    for n in range(2):
        with (large / f"{n}.bin").open("wb") as file:
            for _ in range(size_mb):
                file.write(os.urandom(1 << 20))
    store = FolderBlobs(folder / "blobs")
    manifest = push(store, large)
    say(f"{manifest.size >> 20} MiB fetched and copied, {_ROUNDS} times in turn")
    took = list[tuple[float, float]]()
    cache, copy = folder / "fetched", folder / "copied"
    for _ in range(_ROUNDS):
        fetch_s = _seconds(lambda: ArtifactCache(cache, store).stage(manifest).release())
        copy_s = _seconds(lambda: _copy(folder / "blobs", manifest, copy))
        took.append((fetch_s, copy_s))
        shutil.rmtree(cache)
        shutil.rmtree(copy)
    megabytes = manifest.size / (1 << 20)
    report.median(
        fetch_mb_per_s=[megabytes / fetch_s for fetch_s, _ in took],
        copy_mb_per_s=[megabytes / copy_s for _, copy_s in took],
        fetch_vs_copy=[copy_s / fetch_s for fetch_s, copy_s in took],
    )


def _copy(blobs: Path, manifest: Manifest, target: Path) -> None:
    """Copies the contents one after the other, as `cp` does, and syncs them to the disk."""
    target.mkdir()
    for digest in manifest.blobs:
        shutil.copyfile(blobs / blob_key(digest), target / digest)
        with (target / digest).open("rb") as file:
            os.fsync(file.fileno())


def _seconds(act: Callable[[], object]) -> float:
    since_s = clock.monotonic()
    act()
    return clock.monotonic() - since_s
