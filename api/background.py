"""Tasks and threads of an api process that go on until it stops.

One that ends by a fault takes along whatever waits for it: calls that nobody sends, keys that stay
valid. So each task has its owner here, which logs the fault, starts the work again after a pause,
and lets probes know where that doesn't help: GET /readyz is 503 after 10 s, and after a minute
GET /livez too, and the process ends by SIGTERM, for its supervisor to start another.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from jobs import clock
from jobs.telemetry.metrics import record

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 5.0
_STEADY_S = 5.0  # a run of this length has overcome the fault
_UNREADY_S, _DEAD_S = 10.0, 60.0

Work = Callable[[], Coroutine[Any, Any, None]]

_kept: set["_Kept"] = set()
_died = False  # a thread, or a task for good


class _Kept:
    """One task: since when its runs have been failing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._began_s = clock.monotonic()
        self._failing_since_s: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    @property
    def failing_s(self) -> float:
        """Seconds since the first of the runs in a row that failed; 0 while one lasts."""
        now_s = clock.monotonic()
        if self._failing_since_s is None or now_s - self._began_s >= _STEADY_S:
            return 0.0
        return now_s - self._failing_since_s

    def begin(self) -> None:
        """Begins a run."""
        self._began_s = clock.monotonic()

    def fail(self, error: Exception) -> float:
        """Ends a run by a fault. Returns seconds until the next one."""
        now_s = clock.monotonic()
        if self._failing_since_s is None or now_s - self._began_s >= _STEADY_S:
            self._failing_since_s, self._pause_s = now_s, _FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(_MAX_PAUSE_S, 2 * self._pause_s)
        self._began_s = now_s + pause_s
        record.background_failure(self.name)
        _log.error(
            "the background task %r failed; it is started again in %.1f s",
            self.name, pause_s, exc_info=error,
        )  # fmt: skip
        return pause_s


def keep(name: str, work: Work) -> "asyncio.Task[None]":
    """Starts a task that runs `work`, again after each fault, until that returns or the task is
    cancelled. name: bounded, for logs and metrics."""
    return asyncio.create_task(_keep(_Kept(name), work), name=name)


async def _keep(kept: _Kept, work: Work) -> None:
    _kept.add(kept)
    try:
        while True:
            kept.begin()
            try:
                await work()
                return
            except Exception as error:
                pause_s = kept.fail(error)
            if kept.failing_s >= _DEAD_S:
                _end_process(f"the background task {kept.name!r}")
            await asyncio.sleep(pause_s)
    finally:
        _kept.discard(kept)


def spawn(name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """Starts a task that ends by itself; a fault of it is logged. The caller keeps the task: the
    loop has weak references alone."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_fault)
    return task


def _log_fault(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()):
        record.background_failure(task.get_name())
        _log.error("the task %r failed", task.get_name(), exc_info=error)


def thread_died(thread: threading.ExceptHookArgs) -> None:
    """Ends the process, as `threading.excepthook`: without one of its threads it would look alive
    and lack what that did."""
    name = thread.thread.name if thread.thread else "?"
    record.background_failure("thread")
    _log.critical("the thread %r died", name, exc_info=thread.exc_value)
    _end_process(f"the thread {name!r}")


def unready() -> str:
    """Returns why this process isn't ready; "" if all of its tasks run."""
    for kept in _kept:
        if (failing_s := kept.failing_s) >= _UNREADY_S:
            return f"the background task {kept.name!r} has failed for {failing_s:.0f} s"
    return "a background task has failed for good" if _died else ""


def dead() -> bool:
    """Returns True once a thread has died, or a task failed for a minute: the process ends."""
    return _died


def _end_process(what: str) -> None:
    global _died
    if not _died:
        _died = True
        _log.critical("this process ends by SIGTERM, since %s failed for good", what)
        os.kill(os.getpid(), signal.SIGTERM)
