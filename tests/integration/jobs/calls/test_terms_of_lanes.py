"""Which calls are let in, by what waits and who is busy."""

from dataclasses import replace

import pytest

from jobs.calls.lanes import Rejection, Terms
from jobs.calls.messages import Call
from tests.integration.jobs.calls.made import Lanes
from tests.support.wait import PATIENCE_S

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
    assert launched.take(rows=0, took_ms=5000.0) == []  # items alone
    assert list(launched.look().busy) == ["worker-1/0"]
    assert launched.lanes.look("worker-1/0").busy == {}
    assert late(launched, 0) == 0


def test_what_a_worker_launches_that_drains_or_leaves_keeps_nobody_waiting(launched: Lanes) -> None:
    launched.lanes.announce("worker-2", 60)
    launched.take(rows=0, took_ms=5000.0, worker="worker-2")
    launched.lanes.announce("worker-2", 60, ready=False)
    assert late(launched, 0) == 0
    launched.take(rows=0, took_ms=5000.0, worker="worker-2")
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


def test_a_pool_that_launched_nothing_for_long_is_probed(lanes: Lanes) -> None:
    """What it takes may be known wrongly; a launch would tell."""
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
