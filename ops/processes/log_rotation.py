"""Rotation of log files, which keeps one older file."""

import shutil
from pathlib import Path

MOST_BYTES = 64 << 20


def bound(log: Path, most_bytes: int = MOST_BYTES) -> None:
    """Moves a log that is too large to NAME.1.

    Processes that have opened it for appending write on at its new beginning; a line that is
    written during the move may be lost, and on a full disk all of its lines are.
    """
    if log.exists() and log.stat().st_size > most_bytes:
        older = log.with_name(f"{log.name}.1")
        try:
            shutil.copyfile(log, older)
        except OSError:
            older.unlink(missing_ok=True)
        with log.open("r+b") as file:
            file.truncate(0)
