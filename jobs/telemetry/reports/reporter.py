"""Thread that writes a process's report of its last minute to Redis every few seconds."""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from redis import Redis, RedisError

from jobs.telemetry.metrics.metrics import REGISTRY
from jobs.telemetry.reports.reports import KEY, ProcessKind, Report
from jobs.telemetry.reports.window import WINDOW_S, Window

_log = logging.getLogger(__name__)
FIRST_S = 1.0  # delay of a new process's first report


class Reporter:
    """Reporter of one process.

    `details` is called before the metrics are read, so it may set gauges.
    """

    def __init__(
        self,
        redis: "Redis",
        name: str,
        kind: ProcessKind,
        details: Callable[[], Mapping[str, Any]],
        window_s: float = WINDOW_S,
    ) -> None:
        self._redis, self._name, self._kind, self._details = redis, name, kind, details
        self._window = Window(REGISTRY, window_s)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread and deletes the report."""
        self._stopping.set()
        if self._thread:
            self._thread.join()
            with suppress(RedisError):
                self._redis.hdel(KEY, self._name)

    def _run(self) -> None:
        pause_s = FIRST_S
        while not self._stopping.wait(pause_s):
            pause_s = self._window.every_s
            try:
                self._report()
            except RedisError as error:
                _log.debug("can't write the report: %s", error)
            except Exception:  # the thread must go on
                _log.exception("failed to write the report")

    def _report(self) -> None:
        details, delta = self._details(), self._window.advance()
        seconds, micros = self._redis.time()
        report = Report(self._name, self._kind, seconds + micros / 1e6, delta, details)
        self._redis.hset(KEY, self._name, report.pack())
