"""Who hears that a call came: the replica whose slot has listened for the longest."""

from collections import deque
from typing import Protocol

from jobs.calls.memory import MemoryLanes


class Listener(Protocol):
    """Has one slot that listens, at most."""

    def wait_for_wakeup(self) -> None: ...


class WakeupList:
    """The lanes' bell has one token, which wakes one slot."""

    def __init__(self, lanes: MemoryLanes) -> None:
        self._lanes = lanes
        self._listening: deque[Listener] = deque()

    def answer(self) -> None:
        """The lanes may have rung."""
        while self._lanes.rung and self._listening:
            self._lanes.rung = False
            self._listening.popleft().wait_for_wakeup()

    def listen(self, listener: Listener) -> None:
        self._listening.append(listener)
        self.answer()

    def leave(self, listener: Listener) -> None:
        """It was woken by something else."""
        self._listening.remove(listener)
