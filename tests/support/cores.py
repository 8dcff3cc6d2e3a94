"""Cores that this process may use, which may be fewer than the machine has."""

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def usable_cores() -> float:
    """Returns the least of this process's affinity and the quotas of its control groups."""
    cores = float(len(os.sched_getaffinity(0)))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            root = _ROOT / controllers
            group = root / path.lstrip("/")
            # In a container the path may be the host's: what is mounted is the group itself.
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    cores = min(cores, _quota(folder))
    return cores


def _quota(group: Path) -> float:
    """Returns the cores of a group, by cpu.max or the files of version 1; inf without a quota."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((group / name).read_text() for name in names).split()
        except OSError:
            continue
        if quota not in ("max", "-1"):
            return int(quota) / int(period)
    return float("inf")
