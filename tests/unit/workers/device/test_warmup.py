"""Warm-up sweeps, and what spares them."""

from collections.abc import Sequence

from jobs.models.model import Limits, Model
from tests.support.wait import pause
from workers.device.warmup import Measured, measure_launch_times
from workers.engines.function import FunctionCallEngine
from workers.scheduler.cost import LaunchSize
from workers.scheduler.snapshot import Rules

MODEL = Model(
    "m", "1", "function", options={"function": "a:b"}, limits=Limits(max_batch=8, in_flight=2)
)


class Counting(FunctionCallEngine):
    def __init__(self) -> None:
        self.launches: list[int] = []
        super().__init__(self._launch, ["text"], text_only=True)

    def _launch(self, inputs: Sequence[str]) -> Sequence[str]:
        self.launches.append(len(inputs))
        return inputs


def measured(engine: Counting, known: Measured | None = None) -> Measured:
    return measure_launch_times(MODEL, engine, Rules.from_model(MODEL), known)


def scaled(times: Measured, factor: float) -> Measured:
    return [(size, factor * seconds) for size, seconds in times]


def test_a_sweep_runs_one_row_half_a_batch_and_a_full_one() -> None:
    engine = Counting()
    sizes = {size.rows for size, _ in measured(engine)}
    assert sizes == set(engine.launches) == {1, 4, 8}


def test_known_times_spare_the_sweep_but_for_one_row() -> None:
    slow = _Slow()
    known = measured(slow)
    slow.launches.clear()
    assert measured(slow, known) is known
    assert slow.launches == [1, 1]  # one for each slot


def test_times_that_no_longer_hold_are_measured_again() -> None:
    slow = _Slow()
    known = measured(slow)
    for stale in (scaled(known, 100), scaled(known, 0.01), [(LaunchSize.alike(1, 99), 0.01)]):
        slow.launches.clear()
        assert measured(slow, stale) is not stale
        assert set(slow.launches) == {1, 4, 8}


class _Slow(Counting):
    """Engine whose launches take as long as a test can tell apart on a busy machine."""

    def _launch(self, inputs: Sequence[str]) -> Sequence[str]:
        pause(0.02)
        return super()._launch(inputs)
