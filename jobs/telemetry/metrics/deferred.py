"""Deferred recording: events are queued where they happen and counted a moment later in bulk.

That costs half the time, and no call or launch waits for it. Events that are as frequent as calls
are rows, of which one call of a function counts many.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric

_log = logging.getLogger(__name__)
_INTERVAL_S = 0.25
_IDLE_INTERVAL_S = 1.0  # where nothing was queued
_MAX_QUEUED = 5000  # more than that are flushed at once

_Row = tuple[Any, ...]
#: A function, its arguments and its keyword arguments; None: the arguments are a row.
_queue: "deque[tuple[Callable[..., None], _Row, dict[str, Any] | None]]" = deque()
_flushing = threading.RLock()


def defer(act: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Queues a call of `act`; its arguments must not change any more."""
    _queue.append((act, args, kwargs))
    if len(_queue) > _MAX_QUEUED:
        flush()


def defer_row(act: Callable[[list[Any]], None], *row: Any) -> None:
    """Queues a row for `act`, which gets all rows that were queued for it as one list."""
    _queue.append((act, row, None))
    if len(_queue) > _MAX_QUEUED:
        flush()


def flush() -> None:
    """Runs all queued calls. Logs what they raise."""
    with _flushing:
        rows: dict[Callable[..., None], list[_Row]] = {}
        while _queue:
            act, args, kwargs = _queue.popleft()
            if kwargs is None:
                rows.setdefault(act, []).append(args)
            else:
                _run_logged(act, *args, **kwargs)
        for act, its in rows.items():
            _run_logged(act, its)


def _run_logged(act: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    try:
        act(*args, **kwargs)
    except Exception:  # must not stop the events behind it
        _log.exception("failed to record a metric")


def start() -> None:
    """Starts the thread that flushes the queue periodically."""
    threading.Thread(target=_run, name="metrics", daemon=True).start()


def _run() -> None:
    never, pause_s = threading.Event(), _INTERVAL_S
    while not never.wait(pause_s):
        pause_s = _INTERVAL_S if _queue else _IDLE_INTERVAL_S
        flush()


class Registry(CollectorRegistry):
    """Registry that flushes the queue before it is read."""

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics, with everything queued so far."""
        flush()
        yield from super().collect()
