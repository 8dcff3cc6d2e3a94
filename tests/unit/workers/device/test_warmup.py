"""Warm-up sweeps, and what spares them."""

import threading
from collections.abc import Sequence

import pytest

from jobs import clock
from jobs.models.model import Limits, Model
from workers.device.warmup import Measured, measure_launch_times
from workers.engines.function import FunctionCallEngine
from workers.scheduler.cost import LaunchSize
from workers.scheduler.snapshot import Rules

LIMITS = Limits(max_batch=8, in_flight=2)
MODEL = Model("m", "1", "function", options={"function": "a:b"}, limits=LIMITS)


class Clock(threading.local):
    """Time of each thread, which launches alone make pass."""

    now_s = 0.0


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that launches are measured by."""
    time = Clock()
    monkeypatch.setattr(clock, "monotonic", lambda: time.now_s)
    return time


class Counting(FunctionCallEngine):
    """Notes the rows of its launches, which take so long by this clock."""

    def __init__(self, time: Clock) -> None:
        self.launches, self.time = list[int](), time
        super().__init__(self._launch, ["text"], text_only=True)

    def _launch(self, inputs: Sequence[str]) -> Sequence[str]:
        self.time.now_s += 0.02
        self.launches.append(len(inputs))
        return inputs


def measured(engine: Counting, known: Measured | None = None) -> Measured:
    return measure_launch_times(MODEL, engine, Rules.from_model(MODEL), known)


def test_a_sweep_runs_one_row_half_a_batch_and_a_full_one(time: Clock) -> None:
    engine = Counting(time)
    sizes = {size.rows for size, _ in measured(engine)}
    assert sizes == set(engine.launches) == {1, 4, 8}


def test_known_times_spare_the_sweep_but_for_one_row_unless_they_no_longer_hold(
    time: Clock,
) -> None:
    known = measured(slow := Counting(time))
    slow.launches.clear()
    assert measured(slow, known) is known
    assert slow.launches == [1, 1]  # one for each slot
    scaled = ([(size, factor * seconds) for size, seconds in known] for factor in (100, 0.01))
    for stale in (*scaled, [(LaunchSize.alike(1, 99), 0.01)]):
        slow.launches.clear()
        assert measured(slow, stale) is not stale
        assert set(slow.launches) == {1, 4, 8}
