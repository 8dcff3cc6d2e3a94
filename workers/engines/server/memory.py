"""Memory of a server and of the processes that it has started."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from jobs.processes.memory import resident_mb

_QUERY = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
_WITHIN_S = 10.0


def memory_mb(pid: int, *, on_cpu: bool) -> float:
    """Returns the memory of a process and its descendants, MiB: on their devices, by nvidia-smi, or
    in RAM. 0 where it isn't known."""
    pids = set(descendants(pid))
    if on_cpu:
        return sum(map(resident_mb, pids))
    if not (program := shutil.which("nvidia-smi")):
        return 0.0
    try:
        done = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=_WITHIN_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0.0
    return used_mb(done.stdout, pids)


def used_mb(table: str, pids: set[int]) -> float:
    """Returns the sum of these processes in a table of nvidia-smi."""
    rows = [line.split(",") for line in table.splitlines()]
    return sum(
        float(row[1])
        for row in rows
        if len(row) == 2 and row[0].strip().isdecimal() and row[1].strip().isdecimal()
        and int(row[0]) in pids
    )  # fmt: skip


def descendants(pid: int) -> Iterator[int]:
    """Yields a process and all that it has started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from descendants(int(child))
