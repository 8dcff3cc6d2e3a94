"""Utilization of a device: the time in which at least one launch is on it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobs import clock
from jobs.telemetry.metrics import record


class Utilization:
    """Busy time of one worker's device, over all its models."""

    def __init__(self, device: str = "") -> None:
        self._device = device
        self._lock = threading.Lock()
        self._launches, self._since_s = 0, 0.0

    @contextmanager
    def launch(self) -> Iterator[None]:
        """Counts the time of one launch."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def update(self) -> None:
        """Counts up to now: a launch may outlast the interval between two reports."""
        self._change(0)

    def _change(self, by: int) -> None:
        with self._lock:
            now_s = clock.monotonic()
            if self._launches:
                record.device_busy(self._device, now_s - self._since_s)
            self._launches += by
            self._since_s = now_s
