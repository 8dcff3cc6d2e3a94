"""Runs closed launches of one model on its engine."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jobs import clock
from jobs.models.model import Model
from workers.device import bisection
from workers.device.health import DeviceHealth, Probe
from workers.device.monitoring.hang_limit import hang_limit_s
from workers.device.monitoring.utilization import Utilization
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines.preemption import Priority, Turn
from workers.engines.protocol import Engine, Gated
from workers.scheduler.entries import Launch
from workers.scheduler.latency import LatencyModel

_log = logging.getLogger(__name__)


class LaunchRunner:
    """Runs launches, each within its deadline; any number of threads may do so at once.

    latency: predicts how long a launch may take; on_too_large: called with the rows of a launch
    that ran out of memory."""

    def __init__(
        self,
        model: Model,
        engine: Engine,
        latency: LatencyModel,
        deadline: LaunchDeadline,
        utilization: Utilization,
        health: DeviceHealth,
        on_too_large: Callable[[int], None],
    ) -> None:
        self.probe = Probe(model, engine, health)
        self.running: dict[str, Launch] = {}  #: by slot
        self._model, self._engine, self._latency = model, engine, latency
        self._deadline, self._utilization, self._health = deadline, utilization, health
        self._on_too_large = on_too_large
        self._gated = isinstance(engine, Gated)

    def run(self, slot: str, launch: Launch, *, isolated: bool) -> tuple[list[Any], bool]:
        """Runs a launch. Returns one output an entry, or the exception that the entry failed with,
        and True if there is none. isolated: its items are a suspect's. Raises DeviceFailed."""
        launch.started_s = clock.monotonic()
        batch = [entry.data for entry in launch.entries]
        self.running[slot] = launch
        turn = Turn(priority_of(launch))
        run = partial(self._run_engine, turn, self._hang_limit_s(launch, isolated), launch)
        try:
            with self._utilization.launch(), turn:
                outputs = bisection.run(run, batch, launch.params, self._shrink)
        finally:
            launch.started_s = turn.began_s or launch.started_s
            launch.engine_s = clock.monotonic() - launch.started_s - turn.waited_s
            del self.running[slot]
        clean = not any(isinstance(output, BaseException) for output in outputs)
        if clean:
            self._health.has_worked = True
        else:
            with self._deadline.within(self._model.limits.max_launch_s):
                failure = self.probe.failure(launch, outputs)
            if failure:
                raise failure
        return outputs, clean

    def device_answers(self) -> bool:
        """Asks for known answers where it is time to. Returns False once they were wrong: the
        device is out of service, and no launch is to blame."""
        if clock.monotonic() >= self.probe.ask_s:
            with self._deadline.within(self._model.limits.max_launch_s):
                self.probe.ask()
        return not self.probe.failed

    def _run_engine(
        self,
        turn: Turn,
        limit_s: float,
        launch: Launch,
        batch: Sequence[Any],
        params: Mapping[str, Any],
    ) -> Sequence[Any]:
        items, calls = len(launch.items), len(launch.calls)
        with self._deadline.within(limit_s, items=items, calls=calls) as stopwatch:
            turn.on_wait, turn.on_run = stopwatch.wait, stopwatch.run
            return self._engine.run(batch, params)

    def _hang_limit_s(self, launch: Launch, isolated: bool) -> float:
        limits = self._model.limits
        if self._gated:  # its requests have a timeout of their own
            return limits.max_launch_s
        return hang_limit_s(limits, self._latency, launch, alone=isolated)

    def _shrink(self, rows: int) -> None:
        _log.warning("%s: %d rows ran out of memory", self._model.key, rows)
        self._on_too_large(rows)


def priority_of(launch: Launch) -> Priority:
    """Returns the priority of a launch on the device."""
    if launch.background:
        return Priority.ITEMS
    return Priority.BULK if launch.bulk else Priority.CALLS
