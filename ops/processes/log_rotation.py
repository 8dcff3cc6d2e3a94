"""Rotation of log files, which keeps one older file."""

import shutil
from pathlib import Path

MOST_BYTES = 64 << 20


def bound(log: Path, most_bytes: int = MOST_BYTES) -> None:
    """Moves a log that is too large to NAME.1.

    Processes that have opened it for appending write on at its new beginning; a line that is
    written during the move may be lost.
    """
    if log.exists() and log.stat().st_size > most_bytes:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        with log.open("r+b") as file:
            file.truncate(0)
