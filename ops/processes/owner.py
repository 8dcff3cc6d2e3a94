"""Threads of a supervisor that go on until it stops, and steps of its loop.

One that ends by a fault takes along what it did: workers look silent, a pool keeps its number. So
each has its owner here, which logs the fault and begins again after a pause. A supervisor has no
probe that could call it unready; once something has failed for a minute, it ends its processes in
order and itself by one line, for whoever runs it to start another.

A step has failed for so long if none succeeded in between, however long each takes. A thread tells
of no success: it has failed for so long if no run of it in between went on for `_STEADY_S`.
"""

import logging
import threading
from collections.abc import Callable
from math import inf

import click

from jobs.telemetry.faults import DEAD_S, Faults

_STEADY_S = 15.0  # of a thread: it may wait for the database twice before it fails, 7 s each

_log = logging.getLogger("millrace.processes")

_kept: set[Faults] = set()


class Failed(click.ClickException):
    """Reports what the supervisor can't do any more."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(
            f"{faults.name} has failed for {faults.failing_s:.0f} s, at last by {faults.latest}; "
            "see the log above. All processes are ended: start again"
        )


def keep(name: str, work: Callable[[], None], stopping: threading.Event) -> threading.Thread:
    """Starts a thread that runs `work`, again after each fault, until that returns or the event is
    set. Raises RuntimeError where no thread can be started."""
    thread = threading.Thread(target=_keep, args=(name, work, stopping), name=name, daemon=True)
    thread.start()
    return thread


def _keep(name: str, work: Callable[[], None], stopping: threading.Event) -> None:
    faults = Faults(f"the thread {name!r}", _STEADY_S)
    _kept.add(faults)
    try:
        while not stopping.is_set():
            try:
                return work()
            except Exception as error:
                stopping.wait(faults.add(error))
    finally:
        _kept.discard(faults)


def spawn(name: str, work: Callable[[], None]) -> None:
    """Starts a thread that ends by itself. A fault of it is logged, and where none can be started,
    that."""

    def run() -> None:
        try:
            work()
        except Exception:
            _log.exception("the thread %r failed", name)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        _log.error("the thread %r can't be started: %s", name, error)


def check() -> None:
    """Raises Failed once a thread has failed for a minute; for each turn of a supervisor's loop."""
    for faults in list(_kept):
        if faults.failing_s >= DEAD_S:
            raise Failed(faults)


class Step:
    """Step of a loop: where it failed it is left out until its pause is over."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._faults, self._act = Faults(name, steady_s=inf), act

    def __call__(self) -> None:
        """Takes the step. Raises Failed once it has failed for a minute."""
        if self._faults.pause_left_s:
            return
        try:
            self._act()
            self._faults.overcome()
        except Exception as error:
            self._faults.add(error)
            if self._faults.failing_s >= DEAD_S:
                raise Failed(self._faults) from error
