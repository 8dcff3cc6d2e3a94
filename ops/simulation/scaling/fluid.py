"""A pool as a fluid: work comes in steps of a second or less, and replicas work it off. No launches
and no single calls: an hour takes a few milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.scaling.signals import Signals

DECIDES_S = 2.0  # between two decisions, as the keeper's
_REPORTS_S = 5.0  # between two reports, as processes'
_RECENT_S = 10.0  # that a report's recent counters are of


class Controller(Protocol):
    """Decides on the number of replicas."""

    name: str

    def decide(self, signals: Signals, served: float) -> int:
        """Returns the replicas that there should be. served: work done over the last ten seconds,
        in replicas: the busy ones."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """Work by step of time, in seconds of one replica."""

    work: Sequence[float]
    step_s: float
    target_s: float = 0.5  #: time that calls may wait; what would wait longer is refused
    items: float = 0.0  #: work of items that come steadily, in replicas; they yield to calls
    backlog_s: float = 0.0  #: work of items that wait at the beginning, s of one replica

    @property
    def mean(self) -> float:
        """Mean work, in replicas."""
        return sum(self.work) / (len(self.work) * self.step_s)


@dataclass(slots=True)
class Run:
    """Outcome of a load under a controller."""

    name: str
    replica_s: float = 0.0  #: time of replicas, those that boot included
    refused: float = 0.0  #: share of the work of calls
    items_s: float = 0.0  #: work of items that was done, s of one replica
    most: int = 0  #: replicas at a time
    changes: int = 0  #: of the number
    replicas: list[int] = field(default_factory=list)  #: ready ones, by decision


def simulate(
    controller: Controller, load: Load, boot_s: float, first: int, faults: Sequence[range] = ()
) -> Run:
    """Returns the run of a load. boot_s: until a new replica is ready; first: replicas at the
    beginning; faults: steps during which no metrics come."""
    pool, run = (
        Pool(load.step_s, load.target_s, first, load.backlog_s, load.items),
        Run(controller.name),
    )
    every, wanted = max(1, round(DECIDES_S / load.step_s)), first
    boots, ready = list[float](), first
    for n, work in enumerate(load.work):
        at_s = n * load.step_s
        ready += sum(until_s <= at_s for until_s in boots)
        boots = [until_s for until_s in boots if until_s > at_s]
        pool.ready = ready
        pool.step(work)
        run.replica_s += (ready + len(boots)) * load.step_s
        if n % every:
            continue
        missing = ("reports",) if any(n in fault for fault in faults) else ()
        decided = controller.decide(pool.signals(at_s, len(boots), missing), pool.served)
        run.changes += decided != wanted
        wanted = decided
        boots += [at_s + boot_s] * (wanted - ready - len(boots))
        for _ in range(ready + len(boots) - wanted):
            ready, boots = (ready, boots[:-1]) if boots else (ready - 1, boots)
        run.most = max(run.most, wanted)
        run.replicas.append(ready)
    run.refused = sum(pool.refused) / max(1e-9, sum(load.work))
    run.items_s = pool.items_s
    return run


class Pool:
    """Replicas and what waits for them. step_s: length of a step; target_s: time that work may
    wait; backlog_s, items: work of items at the beginning, and in a second."""

    def __init__(
        self,
        step_s: float,
        target_s: float,
        ready: float,
        backlog_s: float = 0.0,
        items: float = 0.0,
    ) -> None:
        self._step_s, self._target_s, self.ready = step_s, target_s, ready
        self._waiting = 0.0
        self._backlog_s, self._items = backlog_s, items
        self.items_s = 0.0  #: work of items that was done
        self._came: list[float] = []
        self._done: list[float] = []
        self.refused: list[float] = []  #: work, by step
        self._window = max(1, round(_RECENT_S / step_s))
        self._report = max(1, round(_REPORTS_S / step_s))

    def step(self, work: float) -> None:
        """Passes one step of time."""
        step_s, room = self._step_s, self.ready * self._target_s
        done = min(self._waiting + work, self.ready * step_s)
        left = self._waiting + work - done
        self._waiting = min(left, room)
        self._came.append(work)
        self._done.append(done)
        self.refused.append(left - self._waiting)
        self._backlog_s += self._items * step_s
        items_s = min(self._backlog_s, self.ready * step_s - done)
        self._backlog_s -= items_s
        self.items_s += items_s

    @property
    def served(self) -> float:
        """Work done over the last ten seconds, in replicas."""
        return self._rate(self._done, len(self._done))

    @property
    def latest(self) -> float:
        """Work done in the latest step."""
        return self._done[-1]

    def signals(self, at_s: float, booting: int, missing: tuple[str, ...] = ()) -> Signals:
        """Returns the load, as the latest reports have it."""
        until = len(self._came) // self._report * self._report
        came = self._rate(self._came, until)
        refused = self._rate(self.refused, until) / came if came else 0.0
        waits = round(self._waiting / self._step_s)
        return Signals(
            at_s, round(self.ready), booting, came, self._backlog_s, queue=waits, refused=refused,
            missing=missing,
        )  # fmt: skip

    def _rate(self, values: list[float], until: int) -> float:
        recent = values[max(0, until - self._window) : until]
        return sum(recent) / (len(recent) * self._step_s) if recent else 0.0
