"""Paths of files in an artifact, as the options of an entry have them before it is staged.

Relative paths among the options of an entry with an artifact are relative to the artifact's root:
they stand as `/artifacts/<digest>/…`, where nothing lies, until a worker has staged the artifact.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

FOLDER = Path("/artifacts")
"""Folder above the roots of all artifacts."""


def root(digest: str) -> Path:
    """Returns the root of an artifact, as options name it."""
    return FOLDER / digest


def below(folder: Path, path: str) -> str:
    """Joins a path of an entry to its folder: that of the models file, or the artifact's root.

    Raises ValueError for one that leads out of the artifact: its bytes would not be verified.
    """
    inside = PurePosixPath(path)
    if FOLDER in folder.parents and (inside.is_absolute() or ".." in inside.parts):
        raise ValueError(f"must be a path below the artifact's root, not {path!r}")
    return str(folder / path)


def name_inside(value: Any) -> str | None:
    """Returns the name that a path has in its artifact; None for what is no such path."""
    if not isinstance(value, str) or not value.startswith(f"{FOLDER}/sha256:"):
        return None
    return value.removeprefix(f"{FOLDER}/").partition("/")[2]


def staged(value: Any, snapshot: Path) -> Any:
    """Returns an option's value with the snapshot in place of the artifact's root."""
    inside = name_inside(value)
    return value if inside is None else str(snapshot / inside)


def digests(
    options: Mapping[str, Any],
    named: Mapping[str, tuple[str, str]],
    files: Mapping[str, str],
) -> dict[str, str]:
    """Returns the SHA-256 that options leave out, as the manifest has them.

    named: by option of a SHA-256, the option of its path, and the file below that. files: SHA-256
    by path in the artifact.
    """
    found = dict[str, str]()
    for option, (path, name) in named.items():
        inside = name_inside(options.get(path))
        if inside is not None and not options.get(option):
            file = (PurePosixPath(inside) / name).as_posix()
            if file in files:
                found[option] = files[file]
    return found
