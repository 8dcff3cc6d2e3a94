"""A virtual clock, and what is due on it."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

BEGINS_S = 1000.0
"""The clock's first second: lanes and schedulers take zero for "never"."""


class EventLoop:
    """Acts in the order of their times; those of one time, in the order they were noted in."""

    def __init__(self) -> None:
        self.now_s = BEGINS_S
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()

    def at(self, at_s: float, act: Callable[..., None], *arguments: Any) -> None:
        heappush(self._due, (max(at_s, self.now_s), next(self._numbers), act, arguments))

    def after(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Acts at once where it takes no time."""
        if seconds <= 0:
            act(*arguments)
        else:
            self.at(self.now_s + seconds, act, *arguments)

    def run(self, over: Callable[[], bool]) -> None:
        """Until it is over, or nothing is due any more."""
        while self._due and not over():
            self.now_s, _, act, arguments = heappop(self._due)
            act(*arguments)
