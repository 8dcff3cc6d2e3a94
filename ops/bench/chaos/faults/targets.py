"""Targets of faults: the fleet, its clients, and processes that are being hit."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from jobs import clock
from ops.bench.chaos.clients.load import Load
from ops.bench.chaos.fleet import ChaosFleet, Look, look
from ops.processes.children import Child

T = TypeVar("T")

#: Work over many steps of the main loop, which returns a T.
Steps = Generator[None, None, T]

Proof = dict[str, Any]

PATIENCE_S = 60.0
_RATHER_AT_WORK_S = 5.0
_FOUND_WITHIN_S = 120.0
_EVEN_THE_LAST = 0.15
_ASK_EVERY_S = 0.1

_READY = """
    SELECT w.incarnation, w.name,
           EXISTS (SELECT FROM slices s WHERE s.lease_owner = w.incarnation) AS at_work
    FROM workers w WHERE w.state = 'ready' AND w.heartbeat_at > now() - interval '6 s'
"""


class Unfired(Exception):
    """Reports that a fault found no target, or no proof."""


@dataclass
class Stage:
    """Fleet and clients under fire."""

    fleet: ChaosFleet
    load: Load
    busy: set[str] = field(default_factory=set)  #: processes that a fault holds
    _ready: list[tuple[Any, ...]] = field(default_factory=list)
    _asked_s: float = 0.0

    def ready(self) -> list[tuple[Any, ...]]:
        """Ready workers: (incarnation, name, holds slices), cached for all faults."""
        if clock.monotonic() > self._asked_s + _ASK_EVERY_S:
            self._ready = self.fleet.query(_READY) or []
            self._asked_s = clock.monotonic()
        return self._ready

    @contextmanager
    def holding(self, what: str) -> Iterator[None]:
        """Keeps other faults from a process, so that each proof is of one fault."""
        self.busy.add(what)
        try:
            yield
        finally:
            self.busy.discard(what)


@dataclass(frozen=True, slots=True)
class Worker:
    """Ready worker process: of one of the fleet's `millrace worker`."""

    pid: int
    incarnation: int
    supervisor: Child
    seen: Look

    @property
    def now(self) -> Look | None:
        """State now; None once this process has ended."""
        found = look(self.pid)
        return found if found and found.born == self.seen.born else None

    @property
    def state(self) -> str:
        """Letter of its state; empty once it has ended."""
        return self.now.state if self.now else ""


def until(found: Callable[[], T | None], patience_s: float = PATIENCE_S) -> Steps[T]:
    """Waits for a value. Raises Unfired after a while."""
    deadline_s = clock.monotonic() + patience_s
    while (value := found()) is None:
        if clock.monotonic() > deadline_s:
            raise Unfired(f"not within {patience_s:g} s: {found.__qualname__}")
        yield
    return value


def true(test: Callable[[], bool], patience_s: float = PATIENCE_S) -> Steps[None]:
    """Waits for a condition. Raises Unfired after a while."""
    yield from until(lambda: test() or None, patience_s)


def a_while(seconds: float) -> Steps[None]:
    """Waits for a time."""
    over_s = clock.monotonic() + seconds
    while clock.monotonic() < over_s:
        yield


def a_worker(stage: Stage, dice: Random) -> Steps[Worker]:
    """Waits for a ready worker that no fault has, preferably one that holds slices.

    Seldom takes the last one, so that work progresses.
    """
    content_s = clock.monotonic() + _RATHER_AT_WORK_S
    spared = 0 if dice.random() < _EVEN_THE_LAST else 1

    def choose() -> Worker | None:
        """Worker to hit now, if any."""
        ready = list(_ready_workers(stage))
        if len(ready) <= spared:
            return None
        idle = [worker for worker, _ in ready] if clock.monotonic() > content_s else []
        choice = [worker for worker, at_work in ready if at_work] or idle
        return dice.choice(choice) if choice else None

    return (yield from until(choose, _FOUND_WITHIN_S))


def has_ready_worker(stage: Stage, supervisor: Child) -> bool:
    """Returns True if a worker of that `millrace worker` is ready."""
    return any(worker.supervisor is supervisor for worker, _ in _ready_workers(stage))


def _ready_workers(stage: Stage) -> Iterator[tuple[Worker, bool]]:
    """Yields (worker, holds slices)."""
    supervisors = {child.pid: child for child in stage.fleet.workers if child.alive()}
    for incarnation, name, at_work in stage.ready():
        pid = int(name.rpartition(":")[2])
        seen = look(pid)
        server = seen and look(seen.parent)  # the supervisor's fork server
        supervisor = server and supervisors.get(server.parent)
        if seen and supervisor and f"worker {pid}" not in stage.busy:
            yield Worker(pid, incarnation, supervisor, seen), at_work
