"""How much CPU processes have used, with everything below them."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.supervisor.platform import Platform

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PPID, _UTIME, _STIME, _CSTIME = 1, 11, 12, 14  # fields of /proc/PID/stat after the name


class Meter:
    """Groups of processes by name. Each pid counts with all its descendants, those that ended
    included; alone: only itself."""

    def __init__(self, groups: Mapping[str, Sequence[int]], alone: Mapping[str, int]) -> None:
        self._groups, self._alone = groups, alone

    def read(self) -> dict[str, float]:
        """Seconds of CPU so far, by name."""
        stats = _stats()
        children: dict[int, list[int]] = defaultdict(list)
        for pid, stat in stats.items():
            children[int(stat[_PPID])].append(pid)
        used = {}
        for name, roots in self._groups.items():
            pids = [pid for root in roots for pid in _tree(children, root)]
            used[name] = sum(_used_s(stats, pid, ended=True) for pid in pids)
        return used | {n: _used_s(stats, pid, ended=False) for n, pid in self._alone.items()}


def of_platform(platform: Platform) -> Meter:
    """Ours: api, workers, keeper, their supervisor (this process), and Redis; not PostgreSQL,
    which calls don't use."""
    groups = defaultdict(list)
    for child in platform.supervisor.children:
        if child.pid:
            groups[child.name.partition("-")[0]].append(child.pid)
    if redis := platform.servers.redis.process:
        groups["redis"].append(redis.pid)
    return Meter(groups, {"supervisor": os.getpid()})


def of_process(name: str, pid: int) -> Meter:
    return Meter({name: [pid]}, {})


def _stats() -> dict[int, list[str]]:
    """What /proc/PID/stat says after the name, of every process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
        found[int(folder.name)] = text.rpartition(")")[2].split()
    return found


def _tree(children: Mapping[int, Sequence[int]], root: int) -> list[int]:
    return [root] + [pid for child in children.get(root, ()) for pid in _tree(children, child)]


def _used_s(stats: Mapping[int, Sequence[str]], pid: int, *, ended: bool) -> float:
    """ended: with its children that ended and were waited for."""
    stat = stats.get(pid)
    if stat is None:
        return 0.0
    last = _CSTIME if ended else _STIME
    return sum(map(int, stat[_UTIME : last + 1])) * _TICK_S
