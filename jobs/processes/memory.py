"""Memory of processes, from /proc."""

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_mb(pid: int | None) -> float:
    """Returns the resident memory of a process, MiB; 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * _PAGE / (1 << 20)
