"""CPU time of processes and their descendants."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import psutil

from jobs import clock
from ops.supervisor.platform import Platform


class Meter:
    """Groups of pids, each counted with its descendants, those that ended included.

    alone: pids that count without theirs.
    """

    def __init__(self, groups: Mapping[str, Sequence[int]], alone: Mapping[str, int]) -> None:
        self._groups, self._alone = groups, alone

    def read(self) -> dict[str, float]:
        """Seconds of CPU so far, by name."""
        used = {name: sum(map(_tree_s, pids)) for name, pids in self._groups.items()}
        return used | {name: sum(_times(pid)[:2]) for name, pid in self._alone.items()}

    def cores(self, seconds: float) -> float:
        """Sleeps; returns the mean number of cores that all of them used meanwhile."""
        before, since_s = sum(self.read().values()), clock.monotonic()
        clock.sleep(seconds)
        return (sum(self.read().values()) - before) / (clock.monotonic() - since_s)


def platform_meter(platform: Platform) -> Meter:
    """Meter of api, workers, keeper, their supervisor (this process) and Redis.

    Leaves out PostgreSQL, which calls don't use.
    """
    return Meter(_groups(platform), {"supervisor": os.getpid()})


def whole_meter(
    platform: Platform, more: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Meter:
    """Meter of all processes of a platform but their supervisor, with PostgreSQL.

    more: pids of further groups.
    """
    groups = _groups(platform)
    if postgres := platform.servers.postgres.process:
        groups["postgres"].append(postgres.pid)
    return Meter({**groups, **more}, {})


def _groups(platform: Platform) -> dict[str, list[int]]:
    groups = defaultdict(list)
    for child in platform.supervisor.children:
        if child.pid:
            groups[child.name.partition("-")[0]].append(child.pid)
    if redis := platform.servers.redis.process:
        groups["redis"].append(redis.pid)
    return groups


def _tree_s(pid: int) -> float:
    try:
        descendants = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0.0
    return sum(sum(_times(each)) for each in (pid, *(process.pid for process in descendants)))


def _times(pid: int) -> Sequence[float]:
    """User and system seconds, then those of children that ended."""
    try:
        return tuple(psutil.Process(pid).cpu_times()[:4])
    except psutil.NoSuchProcess:
        return (0.0,)
