"""Small file system for the home of the fleet, and the file that fills it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LARGEST_STEP = 16 << 20
_PAGE = 4096


@contextmanager
def mounted(folder: Path, size_mb: int) -> Iterator[bool]:
    """Makes a folder with a file system of its own, in memory; yields False where this process may
    not mount one: then it is a plain folder."""
    folder.mkdir()
    options = f"size={size_mb}m,mode=711"
    command = ["mount", "-t", "tmpfs", "-o", options, "millrace-chaos", str(folder)]
    is_mounted = False
    if os.geteuid() == 0:
        with suppress(FileNotFoundError):
            is_mounted = subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> int:
    """Makes a file of all the space that is free on its disk; returns its size."""
    size, step = 0, _LARGEST_STEP
    with file.open("wb") as filler:
        while step >= _PAGE:
            try:
                os.posix_fallocate(filler.fileno(), size, step)
                size += step
            except OSError:
                step //= 2
    return size
