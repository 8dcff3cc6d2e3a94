"""Actuator `local`: starts workers, or apis, of this machine, and drains them."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from ops.processes.children import Child, Supervisor
from workers.keeper.scaling.actuators.protocol import ActuatorError

_log = logging.getLogger("millrace.processes")


C = TypeVar("C", bound=Child)


def last_first(workers: Mapping[int, Any]) -> list[int]:
    """Returns the places of workers, the last one first."""
    return sorted(workers, reverse=True)


class LocalWorkers(Generic[C]):
    """The workers of one pool, or the apis, under one supervisor; for its main thread.

    kind: what they are, as the options of `millrace up` say it; new: makes the one of a place, from
    1 on; most: places that there are; order: returns the places in the order in which they go;
    grace_s: of one that drains, before it is killed.
    """

    def __init__(
        self, supervisor: Supervisor, pool: str, first: Iterable[C], new: Callable[[int], C],
        most: int, order: Callable[[Mapping[int, C]], list[int]] = last_first,
        grace_s: float = 30.0, kind: str = "workers",
    ) -> None:  # fmt: skip
        self._kind = kind
        self._supervisor, self._pool, self._new, self._most = supervisor, pool, new, most
        self._order, self._grace_s = order, grace_s
        self.by_place = dict(enumerate(first, 1))  #: workers that are kept running
        self._leaving: dict[int, C] = {}  # by place, until the next start
        self._asked = len(self.by_place)

    def apply(self, pool: str, replicas: int) -> bool:
        """Implements `Actuator.apply`, for its pool. Where more are asked for than there are places
        it starts what it can, and raises ActuatorError."""
        if pool != self._pool:
            raise ValueError(f"these are {self._kind} of {self._pool}, not of {pool}")
        changed, self._asked = replicas != self._asked, replicas
        while len(self.by_place) < min(replicas, self._most):
            if not self._start():
                break
        if (fewer := len(self.by_place) - replicas) > 0:
            for place in self._order(self.by_place)[:fewer]:
                self._retire(place)
        if replicas > self._most:
            raise ActuatorError(
                f"{replicas} {self._kind} are asked for, and `millrace up` may have {self._most}: "
                f"start it with --max-{self._kind} {replicas}, or lower max_replicas"
            )
        return changed

    def _start(self) -> bool:
        """Starts a worker at the first free place; its place is free once it has ended."""
        retiring = self._supervisor.retiring
        self._leaving = {place: one for place, one in self._leaving.items() if id(one) in retiring}
        for place in range(1, self._most + 1):
            if place in self.by_place or place in self._leaving:
                continue
            child = self._new(place)
            try:
                child.start()
            except (OSError, RuntimeError) as error:  # no memory, process or thread
                child.retired()  # a thread of its own may run
                raise ActuatorError(f"{child.name} can't be started: {error}") from error
            self._supervisor.add(child)
            self.by_place[place] = child
            _log.info("%s starts: the autoscaler asks for it", child.name)
            return True
        return False

    def _retire(self, place: int) -> None:
        child = self._leaving[place] = self.by_place.pop(place)
        _log.info("%s drains and ends: the autoscaler needs it no more", child.name)
        self._supervisor.retire(child, self._grace_s)
