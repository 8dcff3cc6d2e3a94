"""Scratch folders of what is being made: each belongs to the process that holds its lock, and once
that was killed to the next one.

    <name>.lock              an exclusive lock on it (flock) means that a process makes <name>
    .<name>.scratch/         what it has made so far
    .<name>.scratch/*.part   beginning of a download, which the next process continues
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PART = ".part"
_SUFFIX = ".scratch"


@contextmanager
def scratch(folder: Path, name: str) -> Iterator[Path]:
    """Gives this process, and no other at that time, a folder to make `name` in.

    Downloads that an earlier process began lie in it. Of an error they alone stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{name}{_SUFFIX}"
    with _lock(folder, name):
        _clear(path)  # of a process that was killed
        path.mkdir(exist_ok=True)
        try:
            yield path
        except BaseException:
            _clear(path)
            raise
        shutil.rmtree(path)


def sweep(folder: Path) -> None:
    """Removes what killed processes have left in this folder, but not beginnings of downloads."""
    for path in folder.glob(f".*{_SUFFIX}"):
        name = path.name.removeprefix(".").removesuffix(_SUFFIX)
        with suppress(BlockingIOError), _lock(folder, name, fcntl.LOCK_NB):
            _clear(path)


def discard_downloads(path: Path) -> None:
    """Removes what was downloaded into a scratch folder: it has been used."""
    for part in path.rglob(f"*{PART}"):
        part.unlink()


def _clear(path: Path) -> None:
    """Removes all but beginnings of downloads, and the folder itself where there is none."""
    for base, folders, names in os.walk(path, topdown=False):
        for name in names:
            if not name.endswith(PART):
                Path(base, name).unlink()
        for inner in folders:
            with suppress(OSError):  # not empty
                Path(base, inner).rmdir()
    with suppress(OSError):
        path.rmdir()


@contextmanager
def _lock(folder: Path, name: str, how: int = 0) -> Iterator[None]:
    """Holds a lock that ends with its process."""
    with (folder / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | how)
        yield
