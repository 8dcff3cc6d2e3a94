"""Wake-up list: a call wakes the replica whose slot has waited for the longest."""

from collections import deque
from typing import Protocol

from jobs.calls.memory import MemoryLanes


class Waiter(Protocol):
    """Replica, with one slot that waits at most."""

    def wake(self) -> None:
        """Called when a call may be waiting."""


class WakeupList:
    """The lanes give one token, which wakes one slot."""

    def __init__(self, lanes: MemoryLanes) -> None:
        self._lanes = lanes
        self._waiting: deque[Waiter] = deque()

    def notify(self) -> None:
        """Wakes slots if the lanes gave a token."""
        while self._lanes.wakeup_pending and self._waiting:
            self._lanes.wakeup_pending = False
            self._waiting.popleft().wake()

    def add(self, waiter: Waiter) -> None:
        """Adds a replica whose slot waits."""
        self._waiting.append(waiter)
        self.notify()

    def remove(self, waiter: Waiter) -> None:
        """Removes a replica that was woken by something else."""
        self._waiting.remove(waiter)
