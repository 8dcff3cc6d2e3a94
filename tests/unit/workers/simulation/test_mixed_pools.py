"""Replicas whose launches take 50 and 250 ms, up to sixteen calls each, on a virtual clock."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.calls.memory import MemoryLanes
from tests.unit.workers.simulation.made import batches_of, poisson
from workers.simulation.costs import LaunchTimes
from workers.simulation.result import Result
from workers.simulation.run import simulate

pytestmark = pytest.mark.heavy

ROWS = 16
JITTER = (0.9, 0.95, 1.0, 1.05, 1.1)
FAST, SLOW = LaunchTimes(0.05, ratios=JITTER), LaunchTimes(0.25, ratios=JITTER)


def mixed(
    fast: int, slow: int, load: float, target_ms: int, times: tuple[LaunchTimes, ...] = (FAST, SLOW)
) -> Result:
    """Calls at a share of what all replicas do in full launches."""
    per_s = sum(n * ROWS / its.fixed_s for n, its in zip((fast, slow), times, strict=True))
    each = [times[0]] * fast + [times[1]] * slow
    calls = poisson(load * per_s, 6)
    model = batches_of(ROWS, target_ms=target_ms)
    return simulate(model, fast + slow, calls, each, timeout_ms=2000)


def by_slow(result: Result, fast: int) -> float:
    """Share of the calls that slow replicas answered."""
    slow = sum(launch.calls for launch in result.launches if launch.replica >= fast)
    return slow / sum(launch.calls for launch in result.launches)


@pytest.mark.parametrize("target_ms", [250, 500])
@pytest.mark.parametrize("load", [0.13, 0.4, 0.65])
def test_mixed_replicas_refuse_next_to_nothing(load: float, target_ms: int) -> None:
    result = mixed(2, 2, load, target_ms)
    assert result.refused_share <= 0.005
    assert result.miss_share <= 0.005


def test_slow_replicas_help_where_fast_ones_are_too_few_up_to_the_capacity_of_all() -> None:
    result = mixed(1, 5, 0.65, 500)  # the fast one can do half of the work
    assert result.refused_share <= 0.005
    assert result.miss_share <= 0.005
    assert by_slow(result, 1) >= 0.15
    beyond = mixed(1, 5, 1.3, 500)
    assert beyond.refused_share == pytest.approx(1 - 1 / 1.3, abs=0.05)
    assert beyond.miss_share <= 0.06
    assert beyond.rows_per_launch > 0.9 * ROWS


def test_a_call_goes_to_the_cheaper_replica_that_answers_it_in_time() -> None:
    cheap_slow = replace(SLOW, price=0.1)  # a row there costs half
    assert by_slow(mixed(2, 2, 0.05, 500, (FAST, cheap_slow)), 2) >= 0.8
    assert by_slow(mixed(2, 2, 0.05, 500), 2) == 0
    late_there = mixed(2, 2, 0.05, 250, (FAST, cheap_slow))
    assert (by_slow(late_there, 2), late_there.miss_share) == (0, 0)


def test_slow_replicas_serve_alone_once_the_fast_ones_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    announce, announced = MemoryLanes.announce, 0

    def gone(lanes: MemoryLanes, worker: str, ttl_s: float, **known: Any) -> None:
        nonlocal announced
        announced += worker == "0"
        known["ready"] = worker != "0" or announced < 3  # four seconds
        announce(lanes, worker, ttl_s, **known)

    monkeypatch.setattr(MemoryLanes, "announce", gone)
    result = mixed(1, 5, 0.3, 500)
    assert result.refused_share == 0
    for_slow = [launch for launch in result.launches if launch.replica and launch.calls]
    assert min(launch.started_s for launch in for_slow) > 3
    assert len(for_slow) > 10
