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

from jobs.telemetry.faults import DEAD_S, UNREADY_S, Faults
from jobs.telemetry.metrics import record

_log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

_kept: set[Faults] = set()
_died = False  # a thread, or a task for good


def keep(name: str, work: Work) -> "asyncio.Task[None]":
    """Starts a task that runs `work`, again after each fault, until that returns or the task is
    cancelled. name: bounded, for logs and metrics."""
    return asyncio.create_task(_keep(name, work), name=name)


async def _keep(name: str, work: Work) -> None:
    faults = Faults(f"the background task {name!r}")
    _kept.add(faults)
    try:
        while True:
            try:
                await work()
                return
            except Exception as error:
                pause_s = faults.add(error)
                record.background_failure(name)
            if faults.failing_s >= DEAD_S:
                _end_process(faults.name)
            await asyncio.sleep(pause_s)
    finally:
        _kept.discard(faults)


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
    for faults in _kept:
        if (failing_s := faults.failing_s) >= UNREADY_S:
            return f"{faults.name} has failed for {failing_s:.0f} s"
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
