"""Launches that fail: the guilty are found, and nobody else pays."""

from collections.abc import Mapping, Sequence
from math import ceil, log2
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.device import bisection
from workers.engines import frames
from workers.engines.protocol import DeviceFailed, InvalidInput, Permanent, RateLimited, Transient
from workers.items.results import WrongNumberOfOutputs


class Doubling:
    """Doubles numbers. Raises where one of the guilty is in the launch, or leaves them out."""

    def __init__(self, guilty: set[int], silent: bool = False) -> None:
        self.guilty, self.silent, self.launches = guilty, silent, 0

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        self.launches += 1
        if self.guilty & set(batch) and not self.silent:
            raise RuntimeError(f"can't double {min(self.guilty & set(batch))}")
        return [2 * value for value in batch if value not in self.guilty]


batches = st.integers(1, 130).flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), max_size=5))
)


@given(batches)
def test_only_the_guilty_fail_each_for_its_own_reason_at_the_cost_of_some_k_log_n_launches(
    drawn: tuple[int, set[int]],
) -> None:
    count, guilty = drawn
    engine = Doubling(guilty)
    outputs = bisection.run(engine.run, range(count), {})
    assert [str(output) for output in outputs] == [
        f"can't double {n}" if n in guilty else str(2 * n) for n in range(count)
    ]
    assert engine.launches <= 1 + 2 * len(guilty) * ceil(log2(count))


@given(batches)
def test_missing_outputs_are_narrowed_down_to_their_inputs(drawn: tuple[int, set[int]]) -> None:
    count, guilty = drawn
    outputs = bisection.run(Doubling(guilty, silent=True).run, range(count), {})
    assert {n for n, out in enumerate(outputs) if isinstance(out, Exception)} == guilty
    assert all(isinstance(outputs[n], WrongNumberOfOutputs) for n in guilty)


def test_a_launch_too_large_succeeds_in_parts_and_too_many_outputs_serve_nobody() -> None:
    def run(batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        if len(batch) > 4:
            raise MemoryError("out of memory")
        return batch

    assert bisection.run(run, list(range(30)), {}) == list(range(30))
    outputs = bisection.run(lambda batch, _: [*batch, "one more"], ["a", "b", "c"], {})
    assert [str(output) for output in outputs] == ["2 outputs for 1 inputs"] * 3


def test_a_rate_limit_tells_nobody_of_those_who_shared_the_launch() -> None:
    def run(batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        raise RateLimited(f"too soon for {batch[-1]}", 7.0)

    ours, theirs = bisection.run(run, ["ours", "theirs"], {})
    assert (ours.retry_after_s, theirs.retry_after_s) == (7.0, 7.0)
    assert "theirs" not in str(ours)
    assert str(bisection.run(run, ["alone"], {})[0]) == "too soon for alone"


def test_an_interruption_is_nobodys_fault_and_a_device_that_failed_is_not_asked_again() -> None:
    with pytest.raises(KeyboardInterrupt):
        bisection.run(Mock(side_effect=KeyboardInterrupt), ["a", "b"], {})
    run = Mock(side_effect=RuntimeError("CUDA error: uncorrectable ECC error encountered"))
    with pytest.raises(DeviceFailed, match="uncorrectable ECC"):
        bisection.run(run, list(range(64)), {})
    assert run.call_count == 1


def test_an_exception_that_fails_alone_keeps_its_frames_as_text() -> None:
    [good, bad] = bisection.run(Doubling({1}).run, range(2), {})
    assert good == 0
    assert bad.__traceback__ is None
    text = frames.of(bad)
    assert text.endswith("RuntimeError: can't double 1")
    assert "tests/unit/workers/device/test_bisection.py" in text
    assert "raise RuntimeError(f\"can't double" in text
    assert "bisection.py" not in text.replace("test_bisection.py", "")


@pytest.mark.parametrize("error", [InvalidInput("no"), Transient("later"), Permanent("never")])
def test_an_exception_that_an_engine_meant_has_no_frames(error: Exception) -> None:
    assert not frames.of(bisection.run(Mock(side_effect=error), [1], {})[0])
