"""State of another process, as the kernel has it."""

import signal
from pathlib import Path

_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


def ended_from_outside(status: int | None) -> bool:
    """Returns True for the exit status (negative for a signal) of a process that somebody killed,
    or the kernel where memory was short."""
    return status is not None and -status in _FROM_OUTSIDE


def is_stopped(pid: int | None) -> bool:
    """Returns True for a process that a signal has stopped (SIGSTOP)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
