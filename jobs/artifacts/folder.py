"""Folders that become artifacts: every file in them, with links taken as the files they mean."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import file_digest
from pathlib import Path

from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import ArtifactFile, Manifest

SIGNATURE = "model.sig"
"""Name of the signature beside the files that it signs."""
IGNORED = frozenset({".git", ".gitattributes", ".github", ".gitignore", SIGNATURE})
"""Names at the root that are no part of an artifact, as for OpenSSF's tools: they are never
stored, and never loaded."""
_THREADS = min(8, os.cpu_count() or 1)


def read(folder: Path) -> Manifest:
    """Returns the manifest of a folder. Raises Untrusted for what an artifact can't hold."""
    files = list_files(folder)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="hash") as threads:
        return Manifest.create(threads.map(_read_file, files, files.values()))


def list_files(folder: Path) -> dict[str, Path]:
    """Returns the files of a folder by their paths below it. Raises Untrusted."""
    if not folder.is_dir():
        raise Untrusted(f"there is no folder {folder}")
    root = folder.resolve()
    found = {path.relative_to(root).as_posix(): path for path in _walk(root)}
    kept = {name: path for name, path in found.items() if name.partition("/")[0] not in IGNORED}
    for name, path in kept.items():
        _check(root, name, path)
    if not kept:
        raise Untrusted(f"{folder} holds no files")
    return kept


def _walk(root: Path) -> Iterator[Path]:
    """Yields all that is no folder. A link to a folder counts as a file, and is refused later."""
    for base, folders, names in os.walk(root, onerror=_raise):
        if Path(base) == root:
            folders[:] = [name for name in folders if name not in IGNORED]
        links = [name for name in folders if os.path.islink(os.path.join(base, name))]
        for name in (*names, *links):
            yield Path(base, name)


def _raise(error: OSError) -> None:
    raise Untrusted(f"{error.filename} can't be read: {error.strerror}") from error


def _check(root: Path, name: str, path: Path) -> None:
    """Raises Untrusted unless a path is a file, or a link to one that may be followed."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise Untrusted(f"{name} is a link that leads nowhere; remove it") from error
    if not target.is_file():
        kind = "a link to something that is no file" if path.is_symlink() else "no regular file"
        raise Untrusted(f"{name} is {kind}; an artifact has files only: copy it, or remove it")
    if path.is_symlink() and not _may_follow(root, target):
        raise Untrusted(
            f"{name} is a link to {target}, outside the folder; only links into the blobs of a "
            "Hugging Face cache are followed: copy the file"
        )


def _may_follow(root: Path, target: Path) -> bool:
    """Returns True for a target in the folder, in the blobs/ of the Hugging Face cache whose
    snapshots/<revision> the folder is, or in those of any such cache: `models--*/blobs`."""
    is_snapshot = root.parent.name == "snapshots"
    own = (root.parents[1] / "blobs").resolve() if is_snapshot else None
    blobs = target.parent
    is_cached = blobs.name == "blobs" and blobs.parent.name.startswith("models--")
    return root in target.parents or blobs == own or is_cached


def _read_file(name: str, path: Path) -> ArtifactFile:
    try:
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            return ArtifactFile(name, os.fstat(file.fileno()).st_size, digest)
    except OSError as error:
        raise Untrusted(f"{path} can't be read: {error.strerror}") from error
