"""Manifests of artifacts: every file with its size and SHA-256, and the digest that names all."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from jobs.artifacts.declared import Untrusted

_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNFIT = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_MOST_NAME_BYTES = 255
_SHOWN = 5  # files of each kind in a message


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """One file of an artifact."""

    path: str  #: below the artifact's root, with slashes
    size: int  #: bytes
    sha256: str  #: hexadecimal


@dataclass(frozen=True)
class Manifest:
    """All files of an artifact, in the order of OpenSSF Model Signing: by the parts of their paths.

    Two artifacts with the same contents under other names have the same digest: a signature covers
    the names, the digest alone doesn't.
    """

    files: tuple[ArtifactFile, ...]

    @classmethod
    def create(cls, files: Iterable[ArtifactFile]) -> "Manifest":
        """Returns the manifest of these files. Raises Untrusted for paths that don't fit."""
        ordered = tuple(sorted(files, key=lambda file: file.path.split("/")))
        if problem := next(_problems(ordered), ""):
            raise Untrusted(problem)
        return cls(ordered)

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Reads a stored manifest. Raises Untrusted for anything else."""
        try:
            entries = _only(json.loads(text), "files")["files"]
            return cls.create(
                ArtifactFile(**_only(entry, "path", "size", "sha256")) for entry in entries
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise Untrusted(f"the manifest can't be read: {error}") from error

    def as_json(self) -> str:
        """Returns the manifest as it is stored."""
        return json.dumps({"files": [asdict(file) for file in self.files]}, ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """Digest that names the artifact: `sha256:`, and that over the files' SHA-256 in order."""
        raw = b"".join(bytes.fromhex(file.sha256) for file in self.files)
        return f"sha256:{sha256(raw).hexdigest()}"

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @cached_property
    def blobs(self) -> Mapping[str, int]:
        """Sizes of its contents (bytes), by SHA-256: each once."""
        return {file.sha256: file.size for file in self.files}

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of each file, by path."""
        return {file.path: file.sha256 for file in self.files}

    def differences(self, expected: Mapping[str, str], name: str) -> Iterator[str]:
        """Yields how its files differ from the expected ones (SHA-256 by path); name: their list,
        for the messages."""
        mine = self.digests
        changed = [path for path in mine if expected.get(path, mine[path]) != mine[path]]
        for paths, problem in (
            (changed, f"differ from {name}"),
            (mine.keys() - expected.keys(), f"are not in {name}"),
            (expected.keys() - mine.keys(), f"are in {name}, and missing"),
        ):
            if paths:
                yield f"{_listed(sorted(paths))} {problem}"


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


def _only(entry: Any, *names: str) -> dict[str, Any]:
    if not isinstance(entry, dict) or entry.keys() != set(names):
        raise ValueError(f"an entry has other fields than {', '.join(names)}")
    return entry


def _problems(files: tuple[ArtifactFile, ...]) -> Iterator[str]:
    """Yields what is wrong with the entries of a manifest."""
    if not files:
        yield "an artifact has at least one file"
    for file in files:
        if problem := path_problem(file.path):
            yield problem
        if type(file.size) is not int or file.size < 0:
            yield f"{file.path}: the size must be a whole number of bytes"
        if not isinstance(file.sha256, str) or not _SHA256.fullmatch(file.sha256):
            yield f"{file.path}: the SHA-256 must be 64 lower-case hexadecimal digits"
    paths = {file.path for file in files}
    if len(paths) < len(files):
        yield "the manifest names a file twice"
    for path in paths:
        folders = {path[:n] for n, mark in enumerate(path) if mark == "/"}
        if both := folders & paths:
            yield f"{min(both)} is a file and a folder"
    sizes = dict[str, int]()
    for file in files:
        if sizes.setdefault(file.sha256, file.size) != file.size:
            yield f"{file.path}: another file with this SHA-256 has another size"


def path_problem(path: Any) -> str:
    """Returns why this can't be the path of a file in an artifact, or an empty text."""
    if not isinstance(path, str) or not path:
        return "a file has no path"
    if _UNFIT.search(path):
        return f"{path!r} has a backslash, a control character or undecodable bytes in its name"
    parts = path.split("/")
    if {"", ".", ".."} & set(parts):
        return f"{path!r} is no path below the artifact's root"
    if any(len(part.encode()) > _MOST_NAME_BYTES for part in parts):
        return f"{path[:100]!r}…: a name is longer than {_MOST_NAME_BYTES} bytes"
    return ""
