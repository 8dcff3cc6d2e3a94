"""Polls with deadlines that scale with the load of the machine."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from pathlib import Path
from typing import TypeVar

from tests.support.cores import usable_cores
from tests.support.pace import pace

T = TypeVar("T")

_POLL_S, _LATER_S = 0.01, 0.1
_SHARE = 0.03  # of the time waited so far, up to the next look: looks ask servers, which takes CPU
_PROBE_S = 0.03  # what the probe takes on a core that nobody else uses
_MOST_TIMES = 8.0
_MOST_S = 200.0  # a test ends by itself, and names what it waits for, before pytest-timeout ends it
PATIENCE_S = 120.0
"""Limit of waits that end when what they wait for happens: only a failure takes so long."""


def slowdown() -> float:
    """Measures how many times longer work takes now than on a quiet machine, or took when the run
    began: 1 to 8."""
    began_s = time.perf_counter()
    sum(range(1_500_000))
    probed = (time.perf_counter() - began_s) / _PROBE_S
    waiting = os.getloadavg()[0] / usable_cores()
    return min(_MOST_TIMES, max(pace(), probed, waiting))


class Deadline:
    """A time limit in seconds of a quiet machine."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._began_s = time.monotonic()

    def look_again_s(self) -> float:
        """Returns the time until the next look, seconds."""
        elapsed_s = time.monotonic() - self._began_s
        return min(_LATER_S, max(_POLL_S, _SHARE * elapsed_s))

    def is_over(self) -> bool:
        """Returns True once the limit has passed, stretched by the load that is there now."""
        elapsed_s = time.monotonic() - self._began_s
        if elapsed_s <= self._timeout_s:
            return False
        return elapsed_s > min(self._timeout_s * slowdown(), max(self._timeout_s, _MOST_S * pace()))

    def check(self, fn: object, over: bool | None = None) -> None:
        """Fails the test, naming the condition, once the limit has passed. over: whether it had
        before the last look."""
        over = self.is_over() if over is None else over
        assert not over, f"not within {self._timeout_s:g} s: {fn}"


def eventually(fn: Callable[[], T], timeout_s: float = PATIENCE_S, every_s: float = _POLL_S) -> T:
    """Calls fn until its result is true, and returns that; fails at the deadline.

    every_s: least time between two calls, seconds; it grows up to 0.1 s in the course of a wait.
    """
    deadline = Deadline(timeout_s)
    while True:
        over = deadline.is_over()  # before the look: who stands still until then looks once more
        if found := fn():
            return found
        deadline.check(fn, over)
        time.sleep(max(every_s, deadline.look_again_s()))


async def eventually_async(fn: Callable[[], T | Awaitable[T]], timeout_s: float = PATIENCE_S) -> T:
    """Calls fn, plain or async, between turns of the event loop until its result is true."""
    deadline = Deadline(timeout_s)
    while True:
        over = deadline.is_over()
        result = fn()
        found: T = await result if isawaitable(result) else result
        if found:
            return found
        deadline.check(fn, over)
        await asyncio.sleep(deadline.look_again_s())


def pause(seconds: float) -> None:
    """Lets time pass: where a slow client, or a limit that isn't reached, is what is tested."""
    time.sleep(seconds)


def gone(pid: int | None) -> bool:
    """Returns True if a process has ended; where nobody reaps orphans, its zombie stays."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
