"""Virtual clock and the events due on it."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

BEGINS_S = 1000.0  # start of the clock: lanes and schedulers take zero for "never"


class EventLoop:
    """Runs callbacks in the order of their times; those of one time in the order of scheduling."""

    def __init__(self) -> None:
        self.now_s = BEGINS_S
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()

    def at(self, at_s: float, act: Callable[..., None], *arguments: Any) -> None:
        """Schedules a callback at a time, s; now if that has passed."""
        heappush(self._due, (max(at_s, self.now_s), next(self._numbers), act, arguments))

    def after(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Schedules a callback after a delay; calls it at once for a delay of zero."""
        if seconds <= 0:
            act(*arguments)
        else:
            self.at(self.now_s + seconds, act, *arguments)

    def run(self, over: Callable[[], bool]) -> None:
        """Runs until `over` returns True, or nothing is scheduled."""
        while self._due and not over():
            self.now_s, _, act, arguments = heappop(self._due)
            act(*arguments)
