"""How busy a GPU is, as its driver tells."""

import shutil
import subprocess
import threading
from collections.abc import Iterable
from datetime import datetime
from signal import SIGTERM
from types import TracebackType
from typing import IO

from jobs import clock
from ops.processes.children import die_with_parent

_EVERY_MS = 100
_QUERY = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]

Sample = tuple[datetime, float]


class GpuWatch:
    """While it is entered: NVML's utilization of the first GPU, by nvidia-smi. That is the share
    of the driver's last sample period (1/6 s to 1 s) in which any kernel ran, whoever's."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def __enter__(self) -> "GpuWatch":
        command = ["nvidia-smi", *_QUERY, f"--loop-ms={_EVERY_MS}"]
        self._process = subprocess.Popen(
            die_with_parent(command, SIGTERM), stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self._thread = threading.Thread(target=self._read, args=[self._process.stdout], daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                if (percent := line.strip()).isdigit():  # "[N/A]" where the driver doesn't tell
                    self.samples.append((clock.now(), int(percent) / 100))


def is_watchable() -> bool:
    return shutil.which("nvidia-smi") is not None


def mean_share(samples: Iterable[Sample], since: datetime, until: datetime) -> float | None:
    """Of the samples between two times; None where there are none."""
    found = [share for at, share in samples if since <= at <= until]
    return sum(found) / len(found) if found else None
