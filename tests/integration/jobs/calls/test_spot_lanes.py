"""Spot workers beside others: which calls each of them sees, and which are let in."""

from dataclasses import replace

import pytest

from jobs.calls.lanes import ON_DEMAND, Terms
from jobs.calls.messages import Call
from jobs.calls.tiers.tier import SPOT_SPEED, Speed
from jobs.states import JobClass
from tests.integration.jobs.calls.made import Lanes

STAYS = Speed(50.0, 12.0)
SPOT = Speed(50.0, 4.0, spot=True)
_OWN = Terms(allowed_ms=500, one_ms=50, full_rows=4, full_ms=50)
TERMS = replace(_OWN, others=(_OWN,))
LANE = "{}/64"


@pytest.fixture
def mixed(launched: Lanes) -> Lanes:
    """worker-1, which stays, beside a spot worker."""
    launched.lanes.announce("worker-1", 60, speed=STAYS)
    launched.lanes.announce("spot", 60, speed=SPOT)
    return launched


def put(lanes: Lanes, id: str, job_class: JobClass) -> None:
    assert lanes.refused(a_call(id, job_class), TERMS) is None


def a_call(id: str, job_class: JobClass) -> Call:
    return Call(id, LANE, "tenant", None, 1, "api-1", job_class=job_class)


def seen(lanes: Lanes, worker: str) -> dict[str, int]:
    return {lane.lane: lane.rows for lane in lanes.lanes.look(f"{worker}/0").lanes}


def test_spot_workers_have_a_tier_of_their_own(mixed: Lanes) -> None:
    stays, spot = mixed.look().tiers
    assert (stays.launch_ms, list(stays.workers), stays.spot) == (50, ["worker-1"], False)
    assert (spot.launch_ms, spot.row_cost, list(spot.workers), spot.spot) == (50, 4, ["spot"], True)
    mixed.lanes.announce("worker-1", 0)
    assert list(mixed.look().tiers) == []


def test_workers_whose_speed_is_not_known_are_told_apart_too(launched: Lanes) -> None:
    """Those of models that generate."""
    launched.lanes.announce("spot", 60, speed=SPOT_SPEED)
    stays, spot = launched.look().tiers
    assert (list(stays.workers), stays.spot) == (["worker-1"], False)
    assert (list(spot.workers), spot.spot) == (["spot"], True)
    launched.lanes.announce("spot-2", 60, speed=SPOT)
    assert [sorted(tier.workers) for tier in launched.look().tiers] == [
        ["spot", "spot-2"],
        ["worker-1"],  # of which no speed is known
    ]


def test_a_spot_worker_that_has_launched_nothing_is_not_the_fastest(mixed: Lanes) -> None:
    mixed.lanes.announce("spot", 60, speed=SPOT_SPEED)
    assert [list(tier.workers) for tier in mixed.look().tiers] == [["worker-1"], ["spot"]]


def test_a_spot_worker_sees_calls_that_may_be_interrupted_alone(mixed: Lanes) -> None:
    for job_class in ("interactive", "standard", "bulk"):
        put(mixed, job_class, job_class)
    assert seen(mixed, "worker-1") == {LANE: 2, ON_DEMAND + LANE: 1}
    assert seen(mixed, "spot") == {LANE: 2}
    assert mixed.take_ids(worker="spot") == ["standard", "bulk"]
    assert mixed.take_ids(lane=ON_DEMAND + LANE) == ["interactive"]
    assert mixed.waiting() == {}


def test_where_nobody_else_is_left_spot_workers_take_all(mixed: Lanes) -> None:
    put(mixed, "before", "interactive")
    assert seen(mixed, "spot") == {}
    mixed.lanes.announce("worker-1", 0)
    assert seen(mixed, "spot") == {ON_DEMAND + LANE: 1}
    put(mixed, "after", "interactive")
    assert seen(mixed, "spot") == {ON_DEMAND + LANE: 1, LANE: 1}
    assert mixed.take_ids(worker="spot", lane=ON_DEMAND + LANE) == ["before"]


def test_without_spot_workers_all_calls_share_their_lane(launched: Lanes) -> None:
    put(launched, "a", "interactive")
    put(launched, "b", "bulk")
    assert launched.waiting() == {LANE: 2}


def test_a_call_that_stays_wakes_a_worker_that_stays_whoever_watches(mixed: Lanes) -> None:
    mixed.lanes.watch("spot/0", mixed.look().now_ms + 60_000, 100)
    put(mixed, "a", "interactive")
    mixed.lanes.wait_for_wakeup("worker-1/0", 60, 0)  # returns at once


def test_calls_that_stay_are_let_in_by_those_that_launch_them(mixed: Lanes) -> None:
    """In 450 ms each of both starts ten launches of four calls, and one that is on time at its
    end; one alone launches those that stay."""

    def admitted(job_class: JobClass, most: int) -> int:
        for n in range(most):
            if mixed.refused(a_call(f"{job_class}-{n}", job_class), TERMS):
                return n
        return most

    stays = admitted("interactive", 100)
    assert 36 <= stays <= 44
    others = admitted("bulk", 100)
    assert 28 <= others <= 44


def test_a_slow_worker_sees_urgent_calls_that_stay_if_the_faster_are_spot(launched: Lanes) -> None:
    slow = replace(STAYS, launch_ms=250.0)
    launched.lanes.announce("worker-1", 60, speed=slow)
    launched.lanes.announce("spot", 60, speed=SPOT)
    put(launched, "stays", "interactive")
    put(launched, "goes", "bulk")
    least = {64: 300.0}
    its = {
        lane.lane: (lane.rows, lane.urgent)
        for lane in launched.lanes.look("worker-1/0", least).lanes
    }
    assert its == {ON_DEMAND + LANE: (1, 0)}
    launched.lanes.announce("fast", 60, speed=STAYS)
    assert list(launched.lanes.look("worker-1/0", least).lanes) == []


def test_a_call_that_stays_goes_back_into_its_lane(mixed: Lanes) -> None:
    put(mixed, "a", "interactive")
    look = mixed.look()
    assert [call.id for call in mixed.take(look, lane=ON_DEMAND + LANE, token=7)] == ["a"]
    mixed.lanes.abort("worker-1", 7)
    assert mixed.waiting() == {ON_DEMAND + LANE: 1}
    mixed.take(lane=ON_DEMAND + LANE, token=8)
    mixed.lanes.abort("worker-1", 8, alone=True)
    assert seen(mixed, "spot") == {}
    assert list(seen(mixed, "worker-1")) == [f"alone:{ON_DEMAND}{LANE}"]


def test_a_client_that_leaves_takes_its_call_along(mixed: Lanes) -> None:
    put(mixed, "a", "interactive")
    mixed.lanes.drop(a_call("a", "interactive"))
    assert mixed.waiting() == {}
