"""How much memory the platform's processes take."""

import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from jobs import clock
from ops.supervisor.platform import Platform

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
_EVERY_S = 0.02


def pids(platform: Platform) -> dict[str, int]:
    """The platform's own processes: api, keeper, worker."""
    children = platform.supervisor.children
    return {child.name.partition("-")[0]: child.pid for child in children if child.pid}


def rss_mb(pid: int) -> float:
    """Resident memory of a process, MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MB


class MemoryWatch:
    """Resident memory of some processes while it is entered: (seconds since then, MiB) each."""

    def __init__(self, watched: Mapping[str, int]) -> None:
        self._watched = watched
        self.samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def peak_mb(self, name: str) -> float:
        return max(mb for _, mb in self.samples[name])

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        self._thread.join()

    def _sample(self) -> None:
        since_s = clock.monotonic()
        while not self._left.wait(_EVERY_S):
            for name, pid in self._watched.items():
                self.samples[name].append((clock.monotonic() - since_s, rss_mb(pid)))
