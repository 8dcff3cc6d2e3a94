"""Log files that don't grow for ever: what was written moves aside, to one file of that size."""

import shutil
from pathlib import Path

MOST_BYTES = 64 << 20


def bound(log: Path, most_bytes: int = MOST_BYTES) -> None:
    """Whoever writes has opened it for appending, and goes on at its new beginning; a line that is
    written just then may be lost."""
    if log.exists() and log.stat().st_size > most_bytes:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        with log.open("r+b") as file:
            file.truncate(0)
