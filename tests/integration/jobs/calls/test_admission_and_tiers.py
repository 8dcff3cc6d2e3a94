"""Which calls are let in, seen and taken: by what waits, and where workers differ or are spot."""

from dataclasses import replace

import pytest

from jobs.calls.lanes import ON_DEMAND, Rejection, Terms
from jobs.calls.messages import Call
from jobs.calls.profile import Profile, Times
from jobs.calls.tiers.tier import SPOT_SPEED, Speed
from jobs.states import JobClass
from tests.integration.jobs.calls.conftest import probe_after
from tests.integration.jobs.calls.made import Lanes
from tests.support.wait import PATIENCE_S

FAST, SLOW = Speed(50.0, 12.0), Speed(250.0, 62.0)
#: Of a call that a fast launch answers in 50 ms and a slow one in 250, four at a time.
MIXED = Terms(
    allowed_ms=500, one_ms=50, full_rows=4, full_ms=50,
    others=(Terms(allowed_ms=500, one_ms=250, full_rows=4, full_ms=250),),
)  # fmt: skip
LEAST = {64: 300.0}  # of the slow one


@pytest.fixture
def mixed(launched: Lanes) -> Lanes:
    """A fast worker, worker-1, beside a slow one."""
    launched.lanes.announce("worker-1", 60, speed=FAST, profile=packed(50.0))
    launched.lanes.announce("slow", 60, speed=SLOW, profile=packed(250.0))
    return launched


def packed(launch_ms: float) -> bytes:
    return Profile(0.0, {64: Times(4, launch_ms, launch_ms)}).pack()


def test_workers_that_are_alike_have_no_tiers(launched: Lanes) -> None:
    launched.lanes.announce("worker-1", 60, speed=FAST)
    launched.lanes.announce("worker-2", 60, speed=replace(FAST, launch_ms=70.0))
    assert list(launched.look().tiers) == []


def test_tiers_are_of_ready_workers_and_the_fastest_is_first(mixed: Lanes) -> None:
    mixed.lanes.announce("third", 60, speed=replace(SLOW, launch_ms=260.0))
    fast, slow = mixed.look().tiers
    assert (fast.launch_ms, list(fast.workers)) == (50, ["worker-1"])
    assert (slow.launch_ms, slow.row_cost, sorted(slow.workers)) == (250, 62, ["slow", "third"])
    mixed.lanes.announce("worker-1", 60, ready=False)
    assert list(mixed.look().tiers) == []


def test_each_tier_keeps_its_profile(mixed: Lanes) -> None:
    assert mixed.lanes.profiles() == [packed(50.0), packed(250.0)]
    mixed.lanes.announce("worker-1", 60, speed=FAST, profile=packed(51.0))
    assert mixed.lanes.profiles() == [packed(51.0), packed(250.0)]
    mixed.lanes.announce("slow", 0)
    assert mixed.lanes.profiles() == [packed(51.0)]


def test_a_worker_of_unknown_speed_counts_as_a_fast_one(mixed: Lanes) -> None:
    mixed.lanes.announce("earlier-release", 60)
    fast, _ = mixed.look().tiers
    assert sorted(fast.workers) == ["earlier-release", "worker-1"]


def put(lanes: Lanes, name: str, due_ms: int) -> None:
    call = Call(name, "{}/64", "tenant", None, 3, "api-1")
    assert lanes.refused(call, MIXED, target_ms=due_ms) is None


def admitted(lanes: Lanes, terms: Terms, job_class: JobClass = "standard") -> int:
    """Puts calls until one is refused; returns how many were let in."""
    for n in range(100):
        id = f"{job_class}-{n}"
        call = Call(id, "{}/64", "tenant", None, 1, "api-1", job_class=job_class)
        if refused := lanes.refused(call, terms):
            assert refused.why == "late"
            assert terms is not MIXED or refused.wait_ms > 300
            return n
    return 100


def test_a_slow_worker_neither_sees_nor_takes_calls_that_are_due_too_soon(mixed: Lanes) -> None:
    put(mixed, "soon", 200)
    before_ms = mixed.look().now_ms
    put(mixed, "later", 60_000)
    [lane] = mixed.lanes.look("slow/0", LEAST).lanes
    assert (lane.rows, lane.urgent, lane.units) == (1, 1, 3)
    assert lane.due_ms > before_ms + 59_999
    assert mixed.take_ids(rows=4, least_ms=300.0, slot="slow/0") == ["later"]
    assert list(mixed.lanes.look("slow/0", LEAST).lanes) == [], "urgent calls alone are not seen"
    [lane] = mixed.look().lanes
    assert (lane.rows, lane.urgent) == (1, 0)
    assert mixed.take_ids(rows=4) == ["soon"]
    assert list(mixed.look().lanes) == []


def test_calls_are_let_in_by_all_tiers_that_answer_in_time(mixed: Lanes) -> None:
    """In 450 ms the fast worker starts ten launches, and the slow one a single one that ends in
    time."""
    assert admitted(mixed, MIXED) == 4 * (10 + 1)


def test_slow_workers_that_never_answer_in_time_let_nothing_in(mixed: Lanes) -> None:
    slow = replace(MIXED.others[0], allowed_ms=200)
    assert admitted(mixed, replace(MIXED, allowed_ms=200, others=(slow,))) == 4 * 4


def test_each_tier_has_a_wake_up_of_its_own(mixed: Lanes) -> None:
    put(mixed, "a", 60_000)
    for tier, slot in ((1, "slow/0"), (0, "worker-1/0")):
        mixed.lanes.wait_for_wakeup(slot, 60, tier)  # returns at once


# -- spot workers beside others

STAYS = Speed(50.0, 12.0)
SPOT = Speed(50.0, 4.0, spot=True)
_OWN = Terms(allowed_ms=500, one_ms=50, full_rows=4, full_ms=50)
TERMS = replace(_OWN, others=(_OWN,))
LANE = "{}/64"


@pytest.fixture
def with_spot(launched: Lanes) -> Lanes:
    """worker-1, which stays, beside a spot worker."""
    launched.lanes.announce("worker-1", 60, speed=STAYS)
    launched.lanes.announce("spot", 60, speed=SPOT)
    return launched


def a_call(id: str, job_class: JobClass) -> Call:
    return Call(id, LANE, "tenant", None, 1, "api-1", job_class=job_class)


def put_class(lanes: Lanes, id: str, job_class: JobClass) -> None:
    assert lanes.refused(a_call(id, job_class), TERMS) is None


def seen(lanes: Lanes, worker: str) -> dict[str, int]:
    return {lane.lane: lane.rows for lane in lanes.lanes.look(f"{worker}/0").lanes}


def test_spot_workers_have_a_tier_of_their_own(with_spot: Lanes) -> None:
    stays, spot = with_spot.look().tiers
    assert (stays.launch_ms, list(stays.workers), stays.spot) == (50, ["worker-1"], False)
    assert (spot.launch_ms, spot.row_cost, list(spot.workers), spot.spot) == (50, 4, ["spot"], True)
    with_spot.lanes.announce("worker-1", 0)
    assert list(with_spot.look().tiers) == []


def test_workers_whose_speed_is_not_known_are_told_apart_too(launched: Lanes) -> None:
    """Those of models that generate."""
    launched.lanes.announce("spot", 60, speed=SPOT_SPEED)
    stays, spot = launched.look().tiers
    assert (list(stays.workers), stays.spot) == (["worker-1"], False)
    assert (list(spot.workers), spot.spot) == (["spot"], True)
    launched.lanes.announce("spot-2", 60, speed=SPOT)
    tiers = [sorted(tier.workers) for tier in launched.look().tiers]
    assert tiers == [["spot", "spot-2"], ["worker-1"]]  # of which no speed is known
    launched.lanes.announce("spot-2", 0)
    launched.lanes.announce("worker-1", 60, speed=STAYS)  # is faster than one that launched nothing
    assert [list(tier.workers) for tier in launched.look().tiers] == [["worker-1"], ["spot"]]


def test_a_spot_worker_sees_calls_that_may_be_interrupted_alone(with_spot: Lanes) -> None:
    for job_class in ("interactive", "standard", "bulk"):
        put_class(with_spot, job_class, job_class)
    assert seen(with_spot, "worker-1") == {LANE: 2, ON_DEMAND + LANE: 1}
    assert seen(with_spot, "spot") == {LANE: 2}
    assert with_spot.take_ids(worker="spot") == ["standard", "bulk"]
    assert with_spot.take_ids(lane=ON_DEMAND + LANE) == ["interactive"]
    assert with_spot.waiting() == {}


def test_where_nobody_else_is_left_spot_workers_take_all(with_spot: Lanes) -> None:
    put_class(with_spot, "before", "interactive")
    assert seen(with_spot, "spot") == {}
    with_spot.lanes.announce("worker-1", 0)
    assert seen(with_spot, "spot") == {ON_DEMAND + LANE: 1}
    put_class(with_spot, "after", "interactive")
    assert seen(with_spot, "spot") == {ON_DEMAND + LANE: 1, LANE: 1}
    assert with_spot.take_ids(worker="spot", lane=ON_DEMAND + LANE) == ["before"]


def test_without_spot_workers_all_calls_share_their_lane(launched: Lanes) -> None:
    put_class(launched, "a", "interactive")
    put_class(launched, "b", "bulk")
    assert launched.waiting() == {LANE: 2}


def test_a_call_that_stays_wakes_a_worker_that_stays_whoever_watches(with_spot: Lanes) -> None:
    with_spot.lanes.watch("spot/0", with_spot.look().now_ms + 60_000, 100)
    put_class(with_spot, "a", "interactive")
    with_spot.lanes.wait_for_wakeup("worker-1/0", 60, 0)  # returns at once


def test_calls_that_stay_are_let_in_by_those_that_launch_them(with_spot: Lanes) -> None:
    """In 450 ms each of both starts ten launches of four calls, and one that is on time at its
    end; one alone launches those that stay."""
    assert 36 <= admitted(with_spot, TERMS, "interactive") <= 44
    assert 28 <= admitted(with_spot, TERMS, "bulk") <= 44


def test_a_slow_worker_sees_urgent_calls_that_stay_if_the_faster_are_spot(launched: Lanes) -> None:
    slow = replace(STAYS, launch_ms=250.0)
    launched.lanes.announce("worker-1", 60, speed=slow)
    launched.lanes.announce("spot", 60, speed=SPOT)
    put_class(launched, "stays", "interactive")
    put_class(launched, "goes", "bulk")
    least = {64: 300.0}
    its = {
        lane.lane: (lane.rows, lane.urgent)
        for lane in launched.lanes.look("worker-1/0", least).lanes
    }
    assert its == {ON_DEMAND + LANE: (1, 0)}
    launched.lanes.announce("fast", 60, speed=STAYS)
    assert list(launched.lanes.look("worker-1/0", least).lanes) == []


def test_a_call_that_stays_goes_back_into_its_lane_and_with_its_client(with_spot: Lanes) -> None:
    put_class(with_spot, "a", "interactive")
    assert with_spot.take_ids(lane=ON_DEMAND + LANE, token=7) == ["a"]
    with_spot.lanes.abort("worker-1", 7)
    assert with_spot.waiting() == {ON_DEMAND + LANE: 1}
    with_spot.take(lane=ON_DEMAND + LANE, token=8)
    with_spot.lanes.abort("worker-1", 8, alone=True)
    assert seen(with_spot, "spot") == {}
    assert list(seen(with_spot, "worker-1")) == [f"alone:{ON_DEMAND}{LANE}"]
    put_class(with_spot, "b", "interactive")
    with_spot.lanes.drop(a_call("a", "interactive"))
    with_spot.lanes.drop(a_call("b", "interactive"))
    assert with_spot.waiting() == {}


# -- which calls are let in, by what waits and who is busy

FIXED = Terms(one_ms=100, full_rows=4, full_ms=100)


def fill(lanes: Lanes, calls: int, lane: str = "{}/64") -> None:
    for n in range(calls):
        call = Call(f"{lane}-{n}", lane, "tenant", None, 1, "api-1")
        assert lanes.refused(call, FIXED) is None


def late(lanes: Lanes, allowed_ms: float, lane: str = "{}/64", slots: int = 1) -> float | None:
    """How long a call of this lane would wait, where that is too long; it is never let in."""
    call = Call("late", lane, "tenant", None, 1, "api-1")
    terms = replace(FIXED, allowed_ms=allowed_ms, slots=slots)
    refused = lanes.refused(call, terms)
    if refused is None:
        lanes.lanes.drop(call)
        return None
    assert refused.why == "late"
    return refused.wait_ms


@pytest.mark.parametrize(
    ("waiting", "workers", "slots", "allowed_ms", "waits_ms"),
    [
        (3, 1, 1, 100, None),  # it shares the next launch
        (3, 1, 1, 99.9, 0),
        (9, 1, 1, 299.9, 200),  # after two full ones
        (9, 1, 1, 300, None),
        (8, 2, 1, 0, 100),  # the third launch, on two slots
        (8, 2, 2, 0, 0),
    ],
)
def test_full_launches_before_it_are_waited_for_in_all_slots(
    launched: Lanes, waiting: int, workers: int, slots: int, allowed_ms: float, waits_ms: float
) -> None:
    fill(launched, waiting)
    for n in range(1, workers):
        launched.lanes.announce(f"another-{n}", 60)
    waits = late(launched, allowed_ms, slots=slots)
    assert waits == (waits_ms if waits_ms is None else pytest.approx(waits_ms))


def test_other_lanes_are_waited_for_by_what_they_cost(launched: Lanes) -> None:
    fill(launched, 6)
    assert late(launched, 0, lane="{}/16") == pytest.approx(200)
    for rows, left_ms in ((2, 100), (3, 0), (1, 0)):
        launched.take(rows=rows)
        launched.lanes.look("worker-1/0")  # the launch has ended
        assert late(launched, 0, lane="{}/16") == pytest.approx(left_ms)


def test_a_pool_that_is_busy_is_waited_for(launched: Lanes) -> None:
    fill(launched, 1)
    launched.take(took_ms=500_000.0)
    assert late(launched, 0) == pytest.approx(500_000, abs=1000 * PATIENCE_S)
    launched.lanes.announce("worker-2", 60)
    assert late(launched, 0) == 0  # the other one is idle


def test_the_slots_are_waited_for_in_turn(launched: Lanes) -> None:
    lanes = launched
    for worker, took_ms in (("worker-1", 500_000.0), ("worker-2", 900_000.0)):
        lanes.lanes.announce(worker, 60)
        lanes.take(rows=0, took_ms=took_ms, worker=worker)
    assert late(lanes, 0) == pytest.approx(500_000, abs=1000 * PATIENCE_S)
    fill(lanes, 4)
    assert late(lanes, 0) == pytest.approx(900_000, abs=1000 * PATIENCE_S)
    fill(lanes, 4, lane="{}/16")
    assert late(lanes, 0) == pytest.approx(500_100, abs=1000 * PATIENCE_S)


def test_a_slot_that_looks_is_not_busy_any_more(launched: Lanes) -> None:
    assert launched.take(rows=0, took_ms=500_000.0) == []  # items alone
    assert list(launched.look().busy) == ["worker-1/0"]
    assert launched.lanes.look("worker-1/0").busy == {}
    assert late(launched, 0) == 0


def test_what_a_worker_launches_that_drains_or_leaves_keeps_nobody_waiting(launched: Lanes) -> None:
    launched.lanes.announce("worker-2", 60)
    launched.take(rows=0, took_ms=500_000.0, worker="worker-2")
    launched.lanes.announce("worker-2", 60, ready=False)
    assert late(launched, 0) == 0
    launched.take(rows=0, took_ms=500_000.0, worker="worker-2")
    assert late(launched, 0) == 0
    launched.lanes.announce("worker-2", 0)
    assert launched.look().busy == {}


def test_a_worker_that_leaves_watches_no_more(lanes: Lanes) -> None:
    until_ms = lanes.look().now_ms + 60_000
    lanes.lanes.watch("worker-1/1", until_ms, 9)
    lanes.lanes.announce("worker", 0)
    assert lanes.look().watched_ms == pytest.approx(until_ms, abs=0.01)
    lanes.lanes.announce("worker-1", 0)
    assert lanes.look().watched_ms == 0


def test_a_longer_launch_counts_for_the_call_that_joins_it(launched: Lanes) -> None:
    fill(launched, 3)
    joined = replace(FIXED, step_ms=10, allowed_ms=129.9)
    call = Call("late", "{}/64", "tenant", None, 1, "api-1")
    assert launched.refused(call, joined) == Rejection("late", 30)
    assert launched.refused(call, replace(joined, allowed_ms=130)) is None


def test_a_pool_idle_for_long_is_probed(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time may be known wrongly; a launch would tell."""
    probe_after(monkeypatch, 60_000)
    probe = Call("probe", "{}/64", "tenant", None, 1, "api-1")
    hopeless = replace(FIXED, allowed_ms=1)
    assert lanes.refused(probe, hopeless) is None
    assert lanes.refused(replace(probe, id="another"), hopeless) == Rejection("late", 0)
    lanes.take(took_ms=0.0)
    assert lanes.refused(replace(probe, id="third"), hopeless) == Rejection("late", 0)


def test_what_is_dropped_costs_nothing(launched: Lanes) -> None:
    fill(launched, 2)
    for n in range(2):
        launched.lanes.drop(Call(f"{{}}/64-{n}", "{}/64", "tenant", None, 1, "api-1"))
    assert late(launched, 0, lane="{}/16") == pytest.approx(0)
