"""Resident memory of processes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil

from jobs import clock
from ops.bench.harness.repeat import repeat
from ops.supervisor.platform import Platform

_PERIOD_S = 0.02

#: By process: (seconds since the start, MiB).
Samples = Mapping[str, list[tuple[float, float]]]


def pids(platform: Platform) -> dict[str, int]:
    """Pids of a platform's processes: api, keeper, worker."""
    children = platform.supervisor.children
    return {child.name.partition("-")[0]: child.pid for child in children if child.pid}


def rss_mb(pid: int) -> float:
    """Resident memory of a process, MiB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


def pss_mb(pid: int) -> float:
    """Resident memory of a process, MiB, where each shared page counts in parts for those that
    share it."""
    return float(psutil.Process(pid).memory_full_info().pss) / 2**20


@contextmanager
def watch_memory(watched: Mapping[str, int]) -> Iterator[Samples]:
    """Samples the resident memory of these pids until it is left."""
    samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
    since_s = clock.monotonic()

    def sample() -> None:
        """Takes a sample of each process."""
        for name, pid in watched.items():
            samples[name].append((clock.monotonic() - since_s, rss_mb(pid)))

    with repeat(_PERIOD_S, sample):
        yield samples


def peak_mb(samples: Samples, name: str) -> float:
    """Largest sample of a process, MiB."""
    return max(mb for _, mb in samples[name])
