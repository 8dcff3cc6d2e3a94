"""Cooperative preemption of launches on the CPU: a semaphore whose holders give way to launches of
higher priority, at points between parts of their work.

The host runs an engine within a `Turn`, the engine holds a `PrioritySemaphore` while it computes
and calls `yield_point` between its parts. A launch that gives way keeps its state and goes on
later, so results don't depend on it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from enum import IntEnum
from typing import Protocol, runtime_checkable

from jobs import clock

FLOOR = 0.05  # share of its time that a launch gets, whatever has priority
_PATIENCE_S = 1.0  # for which a launch that has not begun lets others go first


class Priority(IntEnum):
    """Order of launches: the least goes first."""

    CALLS = 0
    BULK = 1  #: full launches of calls
    ITEMS = 2


@runtime_checkable
class Preemptible(Protocol):
    """Engine that may hold a PrioritySemaphore while it computes."""

    @property
    def preemptible(self) -> bool:
        """True if its launches give way to those of higher priority."""
        ...


class Turn:
    """Use of the device by one launch, on the thread that enters it.

    on_wait, on_run: called as the launch begins to wait for the device, and as it runs again.
    """

    def __init__(
        self,
        priority: Priority = Priority.CALLS,
        on_wait: Callable[[], None] = lambda: None,
        on_run: Callable[[], None] = lambda: None,
    ) -> None:
        self.priority, self.on_wait, self.on_run = priority, on_wait, on_run
        self.began_s = 0.0  #: when it first had the device, monotonic; 0: it never did
        self.waited_s = 0.0  #: seconds that it waited since then
        self.holds: PrioritySemaphore | None = None
        self._since_s = 0.0  # when it last began to run
        self._token: Token[Turn | None] | None = None

    def __enter__(self) -> "Turn":
        self._token = _TURN.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token:
            _TURN.reset(self._token)

    def wait(self, until: Callable[[float], None]) -> None:
        """Calls a function that waits for the device, with the seconds for which it may be kept."""
        since_s = clock.monotonic()
        ran_s = since_s - self._since_s
        self.on_wait()
        until(ran_s / FLOOR if self.began_s else _PATIENCE_S)
        self._since_s = clock.monotonic()
        if self.began_s:
            self.waited_s += self._since_s - since_s
        else:
            self.began_s = self._since_s
        self.on_run()


_TURN: ContextVar[Turn | None] = ContextVar("turn", default=None)


def current_priority() -> Priority:
    """Returns the priority of the launch of this thread; outside of one that of calls."""
    return (_TURN.get() or Turn()).priority


class PrioritySemaphore:
    """Semaphore of the launches that compute at a time. Any thread may use it."""

    def __init__(self, count: int = 1) -> None:
        self._count = self._free = count
        self._changed = threading.Condition()
        self._waiting = [0] * len(Priority)

    def resize(self, count: int) -> None:
        """Changes the number of launches at a time."""
        with self._changed:
            self._free += count - self._count
            self._count = count
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Number of launches that wait."""
        return sum(self._waiting)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds a place for what runs inside."""
        turn = _TURN.get() or Turn()
        if turn.holds is self:  # taken by a caller
            yield
            return
        turn.wait(lambda most_s: self._acquire(turn.priority, most_s))
        turn.holds = self
        try:
            yield
        finally:
            turn.holds = None
            with self._changed:
                self._free += 1
                self._changed.notify_all()

    def give_way(self, turn: Turn) -> None:
        """Lets a launch of higher priority go first, if one waits."""
        if sum(self._waiting[: turn.priority]) > self._free:
            turn.wait(lambda most_s: self._pause(turn.priority, most_s))

    def _pause(self, priority: Priority, most_s: float) -> None:
        with self._changed:
            if sum(self._waiting[:priority]) <= self._free:  # others gave way already
                return
            self._free += 1
            self._changed.notify_all()
            self._await(priority, most_s)

    def _acquire(self, priority: Priority, most_s: float) -> None:
        with self._changed:
            self._await(priority, most_s)

    def _await(self, priority: Priority, most_s: float) -> None:
        """Takes a place in its turn; after `most_s` as one of the highest priority."""
        if not self._wait(priority, None if priority == min(Priority) else most_s):
            self._wait(min(Priority), None)
        self._free -= 1

    def _wait(self, priority: Priority, most_s: float | None) -> bool:
        """Waits until there is a place that nobody of higher priority waits for."""
        self._waiting[priority] += 1
        try:
            return self._changed.wait_for(
                lambda: self._free > sum(self._waiting[:priority]), most_s
            )
        finally:
            self._waiting[priority] -= 1
            self._changed.notify_all()


CPU = PrioritySemaphore()
"""Launches on this process's cores."""


def yield_point() -> None:
    """Gives way to launches of higher priority; called between parts of a launch, of a few ms."""
    turn = _TURN.get()
    if turn is not None and turn.holds is not None:
        turn.holds.give_way(turn)
