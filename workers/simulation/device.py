"""Simulated device: launches compute at a time, slow each other, and give way to those of calls."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from workers.engines.preemption import Priority
from workers.simulation.event_loop import EventLoop


@dataclass(slots=True, eq=False)
class Run:
    """Launch on the device."""

    priority: Priority
    left_s: float  #: of device time, were it alone
    on_end: Callable[[float], None]  #: called with the seconds that it computed
    ran_s: float = 0.0
    begun_s: float = field(default=0.0)  #: when it last began to compute
    number: int = 0  #: of the event of its end: only the latest counts


class Device:
    """Device of one replica.

    `places` launches compute at a time; each that is beside another takes `slowdown` of its time
    longer. Where it preempts, a launch of items gives way to one of calls within `part_s`.
    """

    def __init__(
        self, loop: EventLoop, places: int, slowdown: float = 0.0, part_s: float | None = None
    ) -> None:
        self._loop, self._places = loop, places
        self._slowdown, self._part_s = slowdown, part_s
        self._running: list[Run] = []
        self._pausing: set[Run] = set()
        self._waiting: dict[Priority, deque[Run]] = {priority: deque() for priority in Priority}

    def start(self, priority: Priority, seconds: float, on_end: Callable[[float], None]) -> None:
        """Runs a launch of so many seconds as soon as there is a place."""
        self._waiting[priority].append(Run(priority, seconds, on_end))
        self._fill()
        if self._part_s is not None and self._waiting[priority]:
            self._preempt(priority)

    def _preempt(self, priority: Priority) -> None:
        """Asks launches of a lower priority to give way, one for each that waits."""
        lower = sorted(self._running, key=lambda run: -run.priority)
        for run in lower[: len(self._waiting[priority])]:
            if run.priority > priority and run not in self._pausing:
                self._pausing.add(run)
                self._loop.at(self._loop.now_s + (self._part_s or 0.0), self._pause, run)

    def _pause(self, run: Run) -> None:
        self._pausing.discard(run)
        higher = (self._waiting[other] for other in Priority if other < run.priority)
        if run in self._running and any(higher):
            self._settle()
            self._running.remove(run)
            run.number += 1
            self._waiting[run.priority].appendleft(run)
            self._fill()

    def _fill(self) -> None:
        """Starts what waits, as far as there are places, and foresees when each launch ends."""
        self._settle()
        for waiting in self._waiting.values():
            while waiting and len(self._running) < self._places:
                run = waiting.popleft()
                run.begun_s = self._loop.now_s
                self._running.append(run)
        for run in self._running:
            run.number += 1
            self._loop.at(
                self._loop.now_s + run.left_s * self._stretch(), self._end, run, run.number
            )

    def _settle(self) -> None:
        """Counts what ran until now."""
        for run in self._running:
            ran_s = self._loop.now_s - run.begun_s
            run.left_s -= ran_s / self._stretch()
            run.ran_s += ran_s
            run.begun_s = self._loop.now_s

    def _end(self, run: Run, number: int) -> None:
        if run.number == number and run in self._running:
            self._settle()
            self._running.remove(run)
            self._fill()
            run.on_end(run.ran_s)

    def _stretch(self) -> float:
        return 1.0 + self._slowdown * (len(self._running) - 1)
