"""Health of one worker's device. A failure that no input explains takes the worker out of service,
and its items and calls go elsewhere."""

import threading
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Any
from uuid import UUID

from jobs import clock
from jobs.models.model import Model
from workers.device import bisection, probe
from workers.device.prepare import prepare
from workers.engines.common.device_errors import device_failure
from workers.engines.protocol import DeviceFailed, Engine, Gated
from workers.items.results import error_code
from workers.scheduler.entries import Entry, Launch

_FAILED_LAUNCHES, _FAILED_JOBS = 3, 2  # fewer may have bad inputs
_PROBE_HOLDS_S = 1.0  # a probe that passed isn't repeated within this time
_ASK_EVERY_S, _ASK_SHARE = 60.0, 0.001  # for known answers, which take so much of the time at most


class DeviceHealth:
    """State of one worker's device, over all its models; for any thread.

    on_failure: called once, at the first failure, on the thread that saw it; must not block.
    succeeding_elsewhere: counts those of some jobs that have items which succeeded in other
    workers."""

    def __init__(
        self,
        on_failure: Callable[[], None] = lambda: None,
        succeeding_elsewhere: Callable[[Collection[UUID]], int] = lambda jobs: 0,
    ) -> None:
        self._on_failure, self.succeeding_elsewhere = on_failure, succeeding_elsewhere
        self._lock = threading.Lock()
        self.has_worked = False  #: True once an entry of a launch succeeded
        self.ran_sample = False  #: True once a model's sample succeeded
        self.failure: DeviceFailed | None = None  #: the first
        self.suspects_launch = False  #: True where that launch may have caused it

    def report(self, failure: DeviceFailed, *, alone: bool = False, by_launch: bool = True) -> bool:
        """Records a failure; returns True for the first, whose launch may be the cause.

        That launch is suspected where it ran alone, after an earlier death, where a kernel rejected
        it, and on a device that had worked. by_launch: False where there was none."""
        with self._lock:
            if self.failure is not None:
                return False
            self.failure = failure
            worked = self.has_worked or self.ran_sample
            self.suspects_launch = by_launch and (alone or failure.by_input or worked)
        self._on_failure()
        return True


class Probe:
    """Finds out whether a launch failed because of the device or of its entries, and at times
    whether the device still gives known answers: one that computes wrongly raises nothing."""

    def __init__(self, model: Model, engine: Engine, health: DeviceHealth) -> None:
        self._model, self._engine, self._health = model, engine, health
        self._failed = 0  # launches, all so far
        self._jobs = set[UUID]()  # in them
        self._passed_s = -inf  # when it passed last, monotonic
        self._sample: list[Entry] = []  # one that the engine ran when it was warmed up
        #: Time at which known answers are asked for next, monotonic; never of a device of others.
        self.ask_s = inf if isinstance(engine, Gated) else clock.monotonic() + _ASK_EVERY_S
        self.failed = False  #: True once a known answer was wrong

    def ask(self) -> None:
        """Reports the device, and asks no more, unless known inputs have the answers that they had
        at load: it may also raise anything."""
        began_s = clock.monotonic()
        try:
            self._engine.probe()
            probe.check(self._model, self._engine)
        except Exception as wrong:
            self.failed, self.ask_s = True, inf
            self._health.report(DeviceFailed(str(wrong)), by_launch=False)
            return
        ended_s = clock.monotonic()
        self.ask_s = ended_s + max(_ASK_EVERY_S, (ended_s - began_s) / _ASK_SHARE)

    def prepare(self) -> None:
        """Chooses the sample, once the engine is warm. Raises DeviceFailed where the engine's own
        probe fails."""
        self._engine.probe()
        for sample in self._engine.samples()[:1]:
            prepared = prepare(self._model, self._engine, [sample], {})
            self._sample = [entry for entry in prepared if isinstance(entry, Entry)]
            if self._error() is not None:
                self._sample = []  # it never works
        self._health.ran_sample |= bool(self._sample)

    def failure(self, launch: Launch, outputs: Sequence[Any]) -> DeviceFailed | None:
        """Returns the failure of the device behind the outputs of a launch with errors, or None.

        Where every entry failed by the engine's fault, a known input must still work, and jobs that
        succeed in other workers must not fail in every launch here."""
        errors = [output for output in outputs if isinstance(output, BaseException)]
        for error in errors:
            if failed := device_failure(error):
                return failed
        if len(errors) < len(outputs):
            self._health.has_worked = True
        elif all(error_code(error) == "engine_error" for error in errors):
            return self._known_input_fails() or self._fails_alone(launch)
        return None

    def _known_input_fails(self) -> DeviceFailed | None:
        if clock.monotonic() < self._passed_s + _PROBE_HOLDS_S:
            return None
        try:
            self._engine.probe()
            error = self._error()
        except DeviceFailed as failed:
            return failed
        if error is not None:
            name = type(error).__name__
            return DeviceFailed(f"a sample that worked when the model was loaded fails: {name}")
        self._passed_s = clock.monotonic()
        return None

    def _fails_alone(self, launch: Launch) -> DeviceFailed | None:
        if self._health.has_worked:
            return None
        self._failed += 1
        self._jobs |= {item.owner.lease.job_id for item in launch.items}
        if self._failed < _FAILED_LAUNCHES or len(self._jobs) < _FAILED_JOBS:
            return None
        if self._health.succeeding_elsewhere(self._jobs) < _FAILED_JOBS:
            return None
        return DeviceFailed("every launch fails here, of jobs that succeed in other workers")

    def _error(self) -> BaseException | None:
        """Runs the sample, if there is one; returns the exception that it fails with."""
        if not self._sample:
            return None
        outputs = bisection.run(self._engine.run, [entry.data for entry in self._sample], {})
        return next((output for output in outputs if isinstance(output, BaseException)), None)
