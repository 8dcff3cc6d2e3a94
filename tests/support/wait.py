"""Waiting for something to become true."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def eventually(fn: Callable[[], T], timeout_s: float = 10) -> T:
    """Call fn until what it returns is true, and return that; fail at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not (found := fn()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {fn}"
        time.sleep(0.01)
    return found


def gone(pid: int | None) -> bool:
    """Whether a process has ended; where nobody reaps orphans, its zombie stays."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
