"""What the scheduler does at a load, also with replicas of two speeds and with calls beside a job,
on a virtual clock."""

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from jobs.calls.memory import MemoryLanes
from jobs.models.builtin_models import SAMPLES
from tests.unit.workers.simulation.made import BATCHSTRING, batches_of, poisson
from workers.simulation.costs import NO_OVERHEADS, LaunchTimes, Overheads
from workers.simulation.result import Result, quantile
from workers.simulation.run import simulate

pytestmark = pytest.mark.heavy

FIXED = LaunchTimes(0.1)  # 100 ms whatever the size
JITTERS = LaunchTimes(0.1, ratios=(0.9, 0.95, 1.0, 1.05, 1.1))
BOUND_S = 0.1158  # p95 of six replicas that launch evenly spaced
MINILM = SAMPLES.resolve("minilm")


def of_six(rate_per_s: float, lasts_s: float = 15.0) -> Result:
    calls = poisson(rate_per_s, lasts_s)
    return simulate(BATCHSTRING, 6, calls, FIXED, overheads=NO_OVERHEADS)


def test_six_replicas_launch_evenly_spaced_and_few_calls_hardly_wait_for_company() -> None:
    assert of_six(1000).p(95) == pytest.approx(BOUND_S, rel=0.03)
    assert of_six(5, lasts_s=200).p(95) < 0.105


def test_a_launch_that_is_full_leaves_as_such_and_what_is_around_it_counts_for_its_calls() -> None:
    calls = [(0.0, 1)] + [(0.05, 1)] * 100
    result = simulate(BATCHSTRING, 1, calls, FIXED, overheads=NO_OVERHEADS)
    launches = [(launch.calls, launch.reason) for launch in result.launches]
    assert launches == [(1, "pace"), (100, "full")]
    result = simulate(BATCHSTRING, 1, [(0.0, 1)], FIXED, overheads=Overheads(0.004, 0.003))
    [call] = result.calls
    assert call.latency_s == pytest.approx(0.002 + 0.002 + 0.1 + 0.002)


def everything(seed: int) -> Result:
    """Two replicas with jitter, calls of many sizes and a job."""
    sizes = (5, 20, 60, 200)
    calls = [(at_s, sizes[n % 4]) for n, (at_s, _) in enumerate(poisson(100, 5))]
    times = LaunchTimes(0.004, 0.0005, 5e-5, 1e-8, ratios=(0.8, 1.0, 1.3))
    return simulate(MINILM, 2, calls, times, job_sizes=sizes, seed=seed)


def test_the_same_seed_gives_the_same_result_another_another_and_reasons_add_up() -> None:
    assert everything(1) == everything(1)
    assert everything(1) != everything(2)
    result = everything(4)
    assert sum(result.reasons.values()) == pytest.approx(1.0)
    assert sum(result.launch_reasons.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("replicas", [1, 2, 6])
@pytest.mark.parametrize("rate_per_s", [20, 300, 3000])
def test_every_arrival_ends_exactly_once(replicas: int, rate_per_s: float) -> None:
    calls = poisson(rate_per_s, 4)
    bounds = {"timeout_ms": 210, "most_waiting": 100, "seed": 3}
    result = simulate(batches_of(16), replicas, calls, JITTERS, **bounds)
    assert sorted(end.arrived_s for end in result.calls) == pytest.approx([at for at, _ in calls])
    assert all(end.ended_s >= end.arrived_s for end in result.calls)
    launched = sum(launch.calls for launch in result.launches)
    assert launched >= result.outcomes["answered"]
    assert all(1 <= launch.rows <= 16 for launch in result.launches)


def test_a_job_alone_keeps_every_slot_busy_and_beside_calls_hardly_disturbs_them() -> None:
    result = simulate(BATCHSTRING, 2, [], FIXED, job_sizes=[1], lasts_s=5)
    assert result.utilisation > 0.98
    assert result.items_run == pytest.approx(2 * 100 / 0.1 * 5, rel=0.02)
    calls = poisson(300, 15)
    alone = simulate(BATCHSTRING, 6, calls, FIXED)
    beside = simulate(BATCHSTRING, 6, calls, FIXED, job_sizes=[1])
    assert beside.p(99) <= 1.1 * alone.p(99)
    assert beside.items_run >= 0.8 * (6 * 100 / 0.1 * beside.lasted_s - len(calls))


@pytest.mark.parametrize("times", [FIXED, JITTERS], ids=["fixed", "jitters"])
def test_overload_is_refused_and_what_is_let_in_is_in_time(times: LaunchTimes) -> None:
    capacity_per_s = 32 / 0.1
    calls = poisson(3 * capacity_per_s, 15)
    result = simulate(batches_of(32), 1, calls, times)
    assert result.p(95) <= result.target_s
    assert result.goodput_per_s >= 0.95 * capacity_per_s
    assert result.refused_share > 0.6


def test_what_takes_longer_than_foreseen_expires_and_no_more_calls_wait_than_may() -> None:
    stalls = LaunchTimes(0.1, ratios=(1.0,) * 30 + (8.0,))
    result = simulate(batches_of(1), 1, poisson(8, 30), stalls, timeout_ms=500)
    expired = [end.latency_s for end in result.calls if end.outcome == "expired"]
    assert expired == pytest.approx([0.5] * max(1, len(expired)))
    assert result.p(100) <= 0.5
    result = simulate(batches_of(1), 1, [(0.0, 1)] * 9, LaunchTimes(0.01), most_waiting=3)
    assert result.outcomes == {"answered": 3, "overloaded": 6}
    result = simulate(BATCHSTRING, 1, poisson(2, 10), LaunchTimes(0.25))
    assert result.outcomes["answered"] == len(result.calls)


@pytest.mark.parametrize(("size", "most"), [(250, 2), (100, 5), (10, 51)])
def test_no_launch_exceeds_its_budget_of_tokens(size: int, most: int) -> None:
    at_once = [(0.0, 250)] * 8 + [(0.01, size)] * 200  # the first keep every slot busy
    result = simulate(MINILM, 2, at_once, LaunchTimes(0.05))
    assert max(launch.calls for launch in result.launches) == most


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (0.95, 3.85), (1.0, 4.0)])
def test_a_quantile_lies_between_its_neighbours(share: float, value: float) -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], share) == pytest.approx(value)
    assert quantile([], share) == 0


def test_launch_times_are_fitted_from_a_sweep_and_jitter_as_it_did() -> None:
    true = LaunchTimes(0.004, 0.0005, 5e-5, 1e-8)
    found = LaunchTimes.fitted(true.sweep(MINILM, Random(1)))
    for work, seconds in true.sweep(MINILM, Random(1)):
        assert found.mean_s(work) == pytest.approx(seconds, rel=0.02)
    assert all(0.95 < ratio < 1.05 for ratio in found.ratios)


ROWS = 16
RATIOS = (0.9, 0.95, 1.0, 1.05, 1.1)
FAST, SLOW = LaunchTimes(0.05, ratios=RATIOS), LaunchTimes(0.25, ratios=RATIOS)


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


#: minilm on two cores: 17 ms for a text of 60 tokens, and launches slow each other.
TIMES = LaunchTimes(
    0.004, unit_s=0.00022, ratios=(0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2), slowdown=0.15
)
AROUND = Overheads(call_s=0.004, launch_s=0.003)
PER_S, LASTS_S = 64, 25.0  # half of what the device can do
SIZES = [20 + size % 100 for size in range(0, 700, 7)]


def simulated(*, calls: bool, job: bool, preempts: bool = True) -> Result:
    sizes = Random(2)
    arrivals = [(at_s, sizes.choice(SIZES)) for at_s, _ in poisson(PER_S, LASTS_S)]
    more = {"job_sizes": SIZES if job else (), "lasts_s": LASTS_S, "preempts": preempts}
    return simulate(MINILM, 1, arrivals if calls else [], TIMES, overheads=AROUND, **more)


@cache
def beside() -> Result:
    return simulated(calls=True, job=True)


def test_a_job_hardly_slows_calls_that_it_gives_way_to_and_gets_most_of_what_they_leave() -> None:
    calls, job = simulated(calls=True, job=False), simulated(calls=False, job=True)
    assert beside().p(95) < 1.5 * calls.p(95)
    assert beside().miss_share < 0.01
    left = 1 - PER_S / (job.items_run / job.lasted_s)
    assert beside().items_run / job.items_run == pytest.approx(left, rel=0.25)
    without = simulated(calls=True, job=True, preempts=False)
    assert without.p(95) > 1.3 * beside().p(95), "where it does not give way"


def test_the_same_seed_gives_the_same_launches() -> None:
    assert simulated(calls=True, job=True).launches == beside().launches


def test_a_tenants_burst_of_long_texts_hardly_slows_another() -> None:
    draw = Random(3)
    light = [(at_s, draw.randint(20, 48), "light") for at_s, _ in poisson(9, 40.0)]
    burst = [(at_s + n * 0.002, 230, "burst") for at_s in range(0, 40, 4) for n in range(60)]

    def p95(*others: tuple[float, int, str]) -> float:
        calls = sorted([*light, *others])
        found = simulate(MINILM, 1, calls, TIMES, overheads=AROUND, preempts=True).answered
        return quantile(sorted(one.latency_s for one in found if one.tenant == "light"), 0.95)

    assert p95(*burst) < 1.3 * p95()


def test_launches_of_items_on_two_slots_end_in_turn_while_calls_come() -> None:
    """A launch of items takes 52 ms: a call waits for half of one, and for what fills its own."""
    model = replace(batches_of(1024), target_ms=250)
    model = replace(model, limits=replace(model.limits, in_flight=2))
    times, around = LaunchTimes(0.001, 0.00005), Overheads(0.004, 0.008)

    def of(job: bool, calls_per_s: float) -> Result:
        arrivals = poisson(calls_per_s, 20) if calls_per_s else []
        sizes = [1] if job else []
        return simulate(model, 1, arrivals, times, overheads=around, job_sizes=sizes, lasts_s=20)

    beside, job = of(True, 25), of(True, 0)
    assert beside.p(95) < 1.5 * of(False, 25).p(95) + 0.052
    assert beside.items_run > 0.88 * job.items_run
