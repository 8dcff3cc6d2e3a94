"""Utilization of a GPU as its driver reports it."""

import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from signal import SIGTERM
from typing import IO

from jobs import clock
from ops.processes.children import die_with_parent

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
    command = die_with_parent(_COMMAND, SIGTERM)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        thread = threading.Thread(target=_read, args=[process.stdout, samples], daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            process.terminate()
            thread.join()


def _read(lines: IO[str], samples: list[Sample]) -> None:
    for line in lines:
        if (percent := line.strip()).isdigit():  # "[N/A]" where the driver doesn't report it
            samples.append((clock.now(), int(percent) / 100))  # noqa: PERF401


def is_watchable() -> bool:
    """Returns True if nvidia-smi is installed."""
    return shutil.which("nvidia-smi") is not None


def mean_share(samples: Iterable[Sample], since: datetime, until: datetime) -> float | None:
    """Mean of the samples between two times; None without any."""
    found = [share for at, share in samples if since <= at <= until]
    return sum(found) / len(found) if found else None
