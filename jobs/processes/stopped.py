"""State of another process, as the kernel has it."""

from pathlib import Path


def is_stopped(pid: int | None) -> bool:
    """Returns True for a process that a signal has stopped (SIGSTOP)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
