"""Utilization of a GPU as its driver reports it."""

import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime

from jobs import clock
from ops.bench.harness.child_process import started

_COMMAND = [
    *("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"),
    *("--id=0", "--loop-ms=100"),
]

Sample = tuple[datetime, float]


@contextmanager
def watch_gpu() -> Iterator[list[Sample]]:
    """Samples NVML's utilization of the first GPU, by nvidia-smi, until it is left.

    That is the share of the driver's last sample period (1/6 s to 1 s) in which any process ran a
    kernel.
    """
    samples: list[Sample] = []
    with started(_COMMAND, stdout=subprocess.PIPE) as process:

        def read() -> None:
            """Parses the lines as they come."""
            for line in process.stdout or ():
                if (percent := line.strip()).isdigit():  # "[N/A]": it has no figure
                    samples.append((clock.now(), int(percent) / 100))  # noqa: PERF401

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            process.terminate()
            thread.join()


def is_watchable() -> bool:
    """Returns True if nvidia-smi is installed."""
    return shutil.which("nvidia-smi") is not None


def mean_share(samples: Iterable[Sample], since: datetime, until: datetime) -> float | None:
    """Mean of the samples between two times; None without any."""
    found = [share for at, share in samples if since <= at <= until]
    return sum(found) / len(found) if found else None
