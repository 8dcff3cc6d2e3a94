"""Warm-up sweeps, and what spares them."""

from collections.abc import Sequence

import pytest

from jobs import clock
from jobs.models.model import Limits, Model
from tests.support import thread_clock
from workers.device.warmup.measure import Measured, measure_launch_times
from workers.engines.function import FunctionCallEngine
from workers.scheduler.cost import LaunchSize
from workers.scheduler.snapshot import Rules

LIMITS = Limits(max_batch=8, in_flight=2)
MODEL = Model("m", "1", "function", options={"function": "a:b"}, limits=LIMITS)


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    thread_clock.install(monkeypatch)


class Counting(FunctionCallEngine):
    """Notes the rows of its launches, of 20 ms each."""

    def __init__(self) -> None:
        self.launches = list[int]()
        super().__init__(self._launch, ["text"], text_only=True)

    def _launch(self, inputs: Sequence[str]) -> Sequence[str]:
        clock.sleep(0.02)
        self.launches.append(len(inputs))
        return inputs


def measured(engine: Counting, known: Measured | None = None) -> Measured:
    return measure_launch_times(MODEL, engine, Rules.from_model(MODEL), known)


def test_a_sweep_runs_one_row_half_a_batch_and_a_full_one() -> None:
    engine = Counting()
    sizes = {size.rows for size, _ in measured(engine)}
    assert sizes == set(engine.launches) == {1, 4, 8}


def test_known_times_spare_the_sweep_but_for_one_row_unless_they_no_longer_hold() -> None:
    known = measured(slow := Counting())
    slow.launches.clear()
    assert measured(slow, known) is known
    assert slow.launches == [1, 1]  # one for each slot
    scaled = ([(size, factor * seconds) for size, seconds in known] for factor in (100, 0.01))
    for stale in (*scaled, [(LaunchSize.alike(1, 99), 0.01)]):
        slow.launches.clear()
        assert measured(slow, stale) is not stale
        assert set(slow.launches) == {1, 4, 8}
