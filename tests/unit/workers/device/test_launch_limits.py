"""Limits that entries leave out, of engines whose launches take a known time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jobs import clock
from jobs.models.model import Limits, Model
from tests.support import thread_clock
from workers.device.warmup.limits import MOST_ROWS, MOST_UNITS, measure_limits, on_device
from workers.engines.function import FunctionCallEngine

MODEL = Model("m", "1", "minilm")


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    thread_clock.install(monkeypatch)


class Device(FunctionCallEngine):
    """Launch of a fixed time and a time for each row; more rows than its memory has fail."""

    def __init__(self, fixed_s: float, row_s: float, memory_rows: int = 10**9) -> None:
        self.launches = list[int]()
        self._fixed_s, self._row_s, self._memory_rows = fixed_s, row_s, memory_rows
        super().__init__(self._launch, ["ten chars!"], text_only=True)

    def _launch(self, inputs: Sequence[str]) -> Sequence[str]:
        self.launches.append(len(inputs))
        if len(inputs) > self._memory_rows:
            raise MemoryError
        clock.sleep(self._fixed_s + self._row_s * len(inputs))
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


@pytest.mark.parametrize(
    ("device", "options", "declared", "launches"),
    [
        ("cuda:1", {}, None, 2),
        ("cpu", {}, None, 1),
        ("cuda", {"device": "cpu"}, None, 1),
        ("cpu", {"device": "cuda"}, None, 2),
        ("cuda", {}, 1, 1),
    ],
)
def test_a_gpu_has_two_launches_at_a_time_unless_the_entry_says_how_many(
    device: str, options: Mapping[str, Any], declared: int | None, launches: int
) -> None:
    model = replace(MODEL, options=options, limits=Limits(in_flight=declared))
    assert on_device(model, device).limits.launches == launches
    other = replace(model, engine="echo", options={})
    assert on_device(other, device) == other
