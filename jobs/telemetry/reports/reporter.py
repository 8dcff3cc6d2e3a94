"""A process tells of itself: every few seconds its last minute goes to Redis, from a thread of its
own."""

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
FIRST_S = 1.0
"""After which a process that has just started is heard of."""


class Reporter:
    """name: the process's; about: asked before each look at the metrics, so that it may set what is
    to be seen there."""

    def __init__(
        self,
        redis: "Redis",
        name: str,
        kind: ProcessKind,
        about: Callable[[], Mapping[str, Any]],
        window_s: float = WINDOW_S,
    ) -> None:
        self._redis, self._name, self._kind, self._about = redis, name, kind, about
        self._window = Window(REGISTRY, window_s)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Says goodbye: what is gone has nothing to report."""
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
                _log.debug("no report: %s", error)
            except Exception:  # on a thread of its own: nobody else would hear of it
                _log.exception("a report went wrong")

    def _report(self) -> None:
        about, stretch = self._about(), self._window.turn()
        seconds, micros = self._redis.time()
        report = Report(self._name, self._kind, seconds + micros / 1e6, stretch, about)
        self._redis.hset(KEY, self._name, report.pack())
