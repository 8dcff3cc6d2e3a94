"""Limits that entries leave out, of engines whose launches take a known time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobs import clock
from jobs.models.model import Limits, Model
from workers.device.warmup.limits import MOST_ROWS, MOST_UNITS, measure_limits
from workers.engines.function import FunctionCallEngine

MODEL = Model("m", "1", "minilm")


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One clock for all threads, which only launches move."""
    now_s = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(clock, "sleep", lambda seconds: now_s.append(now_s.pop() + seconds))


class Device(FunctionCallEngine):
    """Launch of a fixed time and a time for each row, and a first one that is slow; more rows than
    its memory has fail."""

    def __init__(
        self, fixed_s: float, row_s: float, memory_rows: int = 10**9, first_s: float = 0.0
    ) -> None:
        self.launches, self._first_s = list[int](), first_s
        self._fixed_s, self._row_s, self._memory_rows = fixed_s, row_s, memory_rows
        super().__init__(self._launch, ["ten chars!"], text_only=True)

    def _launch(self, inputs: Sequence[str]) -> Sequence[str]:
        self.launches.append(len(inputs))
        if len(inputs) > self._memory_rows:
            raise MemoryError
        clock.sleep(self._fixed_s + self._row_s * len(inputs) + self._first_s)
        self._first_s = 0.0
        return inputs


def limits(engine: Device, **declared: Any) -> Limits:
    """Limits that a worker finds for an engine, beside those that are declared."""
    model = replace(MODEL, limits=Limits(**declared))
    return measure_limits(model, engine)[0].limits


@pytest.mark.parametrize(
    ("fixed_s", "row_s", "rows"),
    [
        (0.010, 0.0001, range(1024, 4097)),  # a GPU: launches of 32 rows have 0.3 of its throughput
        (0.0, 0.0009, range(16, 17)),  # a core: rows gain nothing, and 16 of them take 14 ms
        (0.0, 0.5, range(1, 2)),  # and rows that are long by themselves are alone
    ],
)
def test_launches_are_as_large_as_pays(fixed_s: float, row_s: float, rows: range) -> None:
    engine = Device(fixed_s, row_s)
    found = limits(engine)
    assert found.max_batch in rows
    assert found.max_tokens == 10 * found.most_rows
    alone, best = 1 / row_s, found.most_rows / (fixed_s + row_s * found.most_rows)
    assert best >= 0.9 * alone


def test_no_launch_is_larger_than_is_declared_or_may_be_measured() -> None:
    fixed = Device(0.01, 0.0)
    assert limits(fixed).max_batch == min(MOST_ROWS, MOST_UNITS // 10)
    fixed.launches.clear()
    found = limits(fixed, max_tokens=640, slice_items=7)
    assert (found.max_batch, found.max_tokens, found.slice_items) == (64, 640, 7)
    assert max(fixed.launches) == 64


def test_launches_that_memory_holds_no_longer_are_not_made() -> None:
    engine = Device(0.01, 0.0, memory_rows=100)
    assert limits(engine).max_batch == 64
    assert engine.launches.count(128) == 1
    assert max(engine.launches) == 128


def test_declared_rows_and_engines_of_others_are_not_measured() -> None:
    engine = Device(0.01, 0.0)
    for model in (
        replace(MODEL, limits=Limits(max_batch=8)),
        replace(MODEL, engine="function", options={"function": "a:b"}),
    ):
        assert measure_limits(model, engine) == (model, [])
    assert engine.launches == []
    assert Limits().most_rows == 32


def test_known_launches_give_the_same_limits_unless_they_no_longer_hold() -> None:
    engine = Device(0.01, 0.0001)
    model, measured = measure_limits(MODEL, engine)
    engine.launches.clear()
    assert measure_limits(MODEL, engine, measured) == (model, measured)
    assert engine.launches == [1]
    slower = Device(0.5, 0.0)
    found, anew = measure_limits(MODEL, slower, measured)
    assert found != model
    assert anew is not measured
    assert max(slower.launches) > 1


def test_a_model_without_a_sample_that_runs_keeps_what_it_has() -> None:
    assert measure_limits(MODEL, Device(0.01, 0.0, memory_rows=0)) == (MODEL, [])


def test_a_slow_first_launch_costs_no_launch_its_size() -> None:
    warm = limits(Device(0.003, 0.00001))
    assert warm.most_rows > 1000
    assert limits(Device(0.003, 0.00001, first_s=60)) == warm


def test_a_sweep_that_time_cuts_short_finds_nothing() -> None:
    engine = Device(0.6, 0.0)  # more rows cost nothing, but 3 s are over before that is seen
    assert measure_limits(MODEL, engine) == (MODEL, [])
