"""Tenants in turn: who is let in, and what a ticket takes, where one asks for too much."""

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from jobs.calls.lanes import TOO_LATE, Rejection, Terms
from jobs.calls.messages import Call
from tests.integration.jobs.calls.made import Lanes, sized

_numbers = count()
FULL = Terms(one_ms=100, full_rows=10, full_ms=100, allowed_ms=300)  # three launches in time
LIGHT = [f"light {n}" for n in range(9)]


def ask(
    lanes: Lanes, tenant: str, weight: float = 1.0, lane: str = "{}/64", most: int = 10_000
) -> Rejection | None:
    call = Call(f"{next(_numbers)}", lane, tenant, None, 1, "api-1", weight)
    return lanes.refused(call, FULL, most=most)


def flood(lanes: Lanes, tenant: str = "flood", weight: float = 1.0, **where: object) -> int:
    """Until it is refused: how many were let in."""
    let_in = 0
    while ask(lanes, tenant, weight, **where) is None:  # type: ignore[arg-type]
        let_in += 1
    return let_in


def launches(lanes: Lanes, rows: int = 10) -> Iterator[Counter[str]]:
    while taken := lanes.take(rows=rows, took_ms=0.0):
        yield Counter(call.tenant for call in taken)


def test_a_flood_has_all_room_alone_and_keeps_nobody_out_nor_waiting(launched: Lanes) -> None:
    assert flood(launched) == 30
    assert [ask(launched, tenant) for tenant in LIGHT] == [None] * 9
    assert [ask(launched, tenant, lane="{}/16") for tenant in LIGHT] == [None] * 9
    first = next(launches(launched))
    assert {tenant: first[tenant] for tenant in LIGHT} == dict.fromkeys(LIGHT, 1)


def test_round_after_round_the_light_are_let_in_and_served_in_their_turn(launched: Lanes) -> None:
    for _ in range(10):
        flood(launched)
        for _ in range(2):
            assert [ask(launched, tenant) for tenant in LIGHT] == [None] * 9
        assert flood(launched) == 0
        served = sum((next(launches(launched)) for _ in range(2)), Counter[str]())
        assert {tenant: served[tenant] for tenant in LIGHT} == dict.fromkeys(LIGHT, 2)


def test_a_full_queue_is_full_for_who_has_its_share_of_it(launched: Lanes) -> None:
    for tenant, share in (("flood", 20), ("other", 10)):
        assert [ask(launched, tenant, most=20) for _ in range(share)] == [None] * share
        full = ask(launched, tenant, most=20)
        assert full
        assert full.why == "overloaded"


def test_shares_go_by_weight_where_all_want_more(launched: Lanes) -> None:
    weights = {"one": 1.0, "two": 2.0, "four": 4.0}
    for tenant, weight in weights.items():
        for _ in range(100):
            call = Call(f"{next(_numbers)}", "{}/64", tenant, None, 1, "api-1", weight)
            assert launched.refused(call, most=1000) is None
    served = Counter(call.tenant for _ in range(17) for call in launched.take(rows=10))
    for tenant, weight in weights.items():
        assert served[tenant] / served.total() == pytest.approx(weight / 7, rel=0.05)


def test_room_goes_by_weight_too(launched: Lanes) -> None:
    assert flood(launched, "heavy", 4.0) == 30
    assert flood(launched, "light", 1.0) == pytest.approx(30 / 5, abs=1)


def test_what_a_tenant_has_waiting_is_known_however_it_leaves(launched: Lanes) -> None:
    calls = [Call(f"{next(_numbers)}", "{}/64", "flood", None, 1, "api-1", 3.0) for _ in range(30)]
    for call in calls:
        assert launched.refused(call, FULL) is None
    launched.lanes.drop(calls[-1])
    launched.take(rows=5, worker="worker-2", took_ms=0.0, token=1)
    launched.lanes.abort("worker-2", 1)
    launched.take(rows=5, worker="worker-2", took_ms=0.0)
    launched.lanes.announce("worker-2", 0)
    launched.lanes.recover()  # into a lane of their own
    assert sum(launched.waiting().values()) == 29
    while launched.waiting():
        for lane in launched.waiting():
            launched.take(lane=lane, took_ms=0.0)
    assert flood(launched, "flood") == 30
    assert ask(launched, "other") is None


# -- what a ticket takes: budgets of rows and size, tenants in turn


def test_a_look_tells_the_sizes_that_wait_together(lanes: Lanes) -> None:
    sized(lanes, "a", 30, 12)
    dropped = lanes.put("b")
    assert [lane.units for lane in lanes.look().lanes] == [45]
    lanes.lanes.drop(dropped)
    lanes.take(rows=1)
    assert [lane.units for lane in lanes.look().lanes] == [12]


def test_a_launch_is_closed_at_its_size_budget_but_never_empty(lanes: Lanes) -> None:
    sized(lanes, "a", 30, 30, 30, 90, 1)
    taken = [lanes.take_ids(units=64) for _ in range(4)]
    assert taken == [["a0", "a1"], ["a2"], ["a3"], ["a4"]]


def test_tenants_take_turns_over_launches_however_many_calls_one_has(lanes: Lanes) -> None:
    sized(lanes, "a", *[1] * 20)
    sized(lanes, "b", *[1] * 10)
    assert sorted(lanes.take_ids(rows=4)) == ["a0", "a1", "b0", "b1"]
    taken = [id[0] for _ in range(5) for id in lanes.take_ids(rows=3)]
    assert abs(taken.count("a") - taken.count("b")) == 1


def test_turns_are_counted_in_size_where_device_time_goes_by_it(lanes: Lanes) -> None:
    sized(lanes, "a", *[30] * 4)
    sized(lanes, "b", *[10] * 12)
    taken = lanes.take_ids(units=120, sized=True)
    assert [id[0] for id in taken].count("a") == 2
    assert [id[0] for id in taken].count("b") == 6


def test_a_look_tells_which_lane_has_the_tenant_with_least(lanes: Lanes) -> None:
    lane = {"a": "{}/256", "b": "{}/16"}
    sized(lanes, "a", *[1] * 10, lane=lane["a"])
    assert [state.turn for state in lanes.look().lanes] == [0.0]
    lanes.take(lane=lane["a"], rows=4)
    sized(lanes, "b", 1, 1, lane=lane["b"])
    turns = {state.lane: state.turn for state in lanes.look().lanes}
    assert turns[lane["b"]] < turns[lane["a"]]


def test_who_comes_back_has_no_claim_to_the_time_it_was_away(lanes: Lanes) -> None:
    sized(lanes, "a", *[1] * 30)
    for _ in range(5):
        lanes.take(rows=4)
    sized(lanes, "b", *[1] * 10)
    assert [id[0] for id in lanes.take_ids(rows=6)].count("a") in (2, 3)


def test_a_call_that_would_come_too_late_is_not_taken_but_told_so(lanes: Lanes) -> None:
    lanes.put("late", timeout_ms=30_000)
    lanes.put("wanted", timeout_ms=90_000)
    assert lanes.take_ids(needs_ms=60_000.0) == ["wanted"]
    assert lanes.waiting() == {}
    assert lanes.answers() == [("late", None, list(TOO_LATE))]


def test_who_has_much_shares_no_launch_with_those_who_have_little(lanes: Lanes) -> None:
    sized(lanes, "a", *[30] * 20)
    lanes.take(units=120, bulk="apart")
    sized(lanes, "b", 10)
    sized(lanes, "c", 10)
    assert sorted(lanes.take_ids(units=120, bulk="apart")) == ["b0", "c0"]
    assert len(lanes.take_ids(units=120, bulk="apart")) == 4


def test_a_launch_that_overtakes_has_nothing_of_who_has_much_or_is_overtaken(lanes: Lanes) -> None:
    sized(lanes, "a", *[30] * 20)
    before = lanes.look().last_launch_ms
    assert lanes.take_ids(units=120, bulk="none") == []
    assert lanes.look().last_launch_ms == before
    sized(lanes, "b", 10)
    sized(lanes, "c", 10)
    assert lanes.take_ids(units=120, bulk="none", without=("c",)) == ["b0"]
    assert lanes.take_ids(units=120, bulk="none", without=("c",)) == []
    assert lanes.take_ids(units=120, bulk="none") == ["c0"]


def test_calls_of_tenants_that_are_left_out_stay_in_any_launch(lanes: Lanes) -> None:
    sized(lanes, "a", 10, 10)
    sized(lanes, "b", 10, 10)
    assert lanes.take_ids(rows=2, without=("a",)) == ["b0", "b1"]
    assert lanes.take_ids(rows=2, without=("a", "c")) == []
    assert lanes.take_ids(rows=2) == ["a0", "a1"]
