"""Memory of processes, and what the garbage collector walks of it."""

import gc
import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Objects that are made before the garbage collector looks at them, in place of 700. A busy process
#: has more in use than that, which live until their call or slice ends: it would walk them over and
#: over, an eighth of an api's CPU. Most of so many have gone by then; a look takes a millisecond.
_YOUNG = 10_000


def resident_mb(pid: int | None) -> float:
    """Returns the resident memory of a process, MiB; 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * _PAGE / (1 << 20)


def available_bytes() -> int:
    """Returns the memory that a process may still take: the machine's, or its control group's."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    machine = int(fields["MemAvailable"].split()[0]) * 1024
    return max(0, min(machine, _group_bytes(Path("/sys/fs/cgroup"))))


def _group_bytes(group: Path) -> int:
    """Returns what is free in a control group (v2), with its cache of files; without one: a lot."""
    try:
        most = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return 1 << 62 if most == "max" else int(most) - used + int(cached["inactive_file"])
    except (OSError, KeyError, ValueError):
        return 1 << 62


def collect_and_freeze() -> None:
    """Frees what is garbage, and exempts all other objects from later collections, which get rarer.

    Call it once a process has loaded what stays; it ends the pause of `startup.begin`. Parsing
    87,000 lists triggers a full collection, which takes 0.05 s where it walks every module that is
    loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
    gc.enable()
