"""Faults under streams: which process is hit when, and which calls it had."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobs import clock
from jobs.calls.keys import Keys
from ops.bench.chaos.fleet import Fleet, send
from ops.bench.chaos.serving import ready_workers
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say
from ops.bench.probes.engines import engine_pids

_STEP_S = 0.02
_READY_WITHIN_S = 180.0
_STOPPED_S = 10.0  # for which a zombie stands still: longer than its lease
_READY = """
    SELECT incarnation, name FROM workers
    WHERE state = 'ready' AND heartbeat_at > now() - interval '6 s' ORDER BY incarnation
"""


@dataclass
class Injection:
    """Hits processes of a fleet; for the main thread, which also keeps the fleet running."""

    fleet: Fleet
    model: str  #: name@version
    workers: int = 2  #: ready for calls before one of them is hit
    hit: set[str] = field(default_factory=set)  #: calls that a hit worker had
    count: int = 0
    _later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def wait(self, is_over: Callable[[], bool], what: str, within_s: float) -> None:
        """Keeps the fleet running until something is true. Raises BenchError."""
        until_s = clock.monotonic() + within_s
        while not is_over():
            if clock.monotonic() > until_s:
                raise BenchError(f"waited {within_s:g} s in vain until {what}")
            now_s = clock.monotonic()
            due = [each for each in self._later if each[0] <= now_s]
            self._later = [each for each in self._later if each[0] > now_s]
            for _, act in due:
                act()
            self.fleet.poll()
            clock.sleep(_STEP_S)

    def sleep(self, seconds: float) -> None:
        """Keeps the fleet running for a time."""
        over_s = clock.monotonic() + seconds
        self.wait(lambda: clock.monotonic() > over_s, "time has passed", seconds + 60)

    def ready_workers(self) -> dict[str, int]:
        """Returns pids of the workers that are ready for calls, by their names in Redis."""
        names = ready_workers(self.fleet, self.model)
        rows = self.fleet.query(_READY) or []
        pids = {str(number): int(name.rpartition(":")[2]) for number, name in rows}
        return {name: pid for name, pid in pids.items() if name in names}

    def kill(self) -> None:
        """SIGKILL to a worker that has calls."""
        self._signal(signal.SIGKILL)

    def drain(self) -> None:
        """SIGTERM to a worker."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGSTOP to a worker, and SIGCONT after others have its calls."""
        pid = self._signal(signal.SIGSTOP)
        self._later.append((clock.monotonic() + _STOPPED_S, lambda: send(pid, signal.SIGCONT)))

    def crash_child(self) -> None:
        """SIGKILL to the process that has a worker's weights."""
        name, pid = self._choose()
        for child in engine_pids(pid):
            send(child, signal.SIGKILL)
        self._note(name)

    def kill_api(self) -> None:
        """SIGKILL to an api; its supervisor starts another one."""
        api = self.fleet.apis[self.count % len(self.fleet.apis)]
        self._await_apis()
        if api.pid:
            send(api.pid, signal.SIGKILL)
        self.count += 1

    def stop_api(self) -> None:
        """SIGTERM to an api."""
        api = self.fleet.apis[self.count % len(self.fleet.apis)]
        self._await_apis()
        if api.pid:
            send(api.pid, signal.SIGTERM)
        self.count += 1

    def _await_apis(self) -> None:
        self.wait(self.fleet.apis_answer, "both apis answer", _READY_WITHIN_S)

    def _signal(self, number: signal.Signals) -> int:
        name, pid = self._choose()
        send(pid, number)
        self._note(name)
        return pid

    def _choose(self) -> tuple[str, int]:
        """Waits until enough workers are ready; the one that has most calls is hit."""
        ready = dict[str, int]()

        def enough() -> bool:
            ready.clear()
            ready.update(self.ready_workers())
            return len(ready) >= self.workers

        self.wait(enough, f"{self.workers} of the workers are ready", _READY_WITHIN_S)
        name = max(ready, key=lambda name: len(self._calls_of(name)))
        return name, ready[name]

    def _calls_of(self, name: str) -> list[str]:
        taken: Any = self.fleet.redis.hgetall(Keys(self.model)("taken"))
        return [
            id.decode() for id, holder in taken.items() if holder.decode().partition("#")[0] == name
        ]

    def _note(self, name: str) -> None:
        calls = self._calls_of(name)
        self.hit.update(calls)
        self.count += 1
        say(f"fault {self.count}: {len(calls)} streams hit")
