"""What a ticket takes: budgets of rows and size, tenants in turn."""

from jobs.calls.lanes import (
    TOO_LATE,
)
from tests.integration.jobs.calls.made import Lanes, sized


def test_a_look_tells_the_sizes_that_wait_together(lanes: Lanes) -> None:
    sized(lanes, "a", 30, 12)
    dropped = lanes.put("b")
    assert [lane.units for lane in lanes.look().lanes] == [45]
    lanes.lanes.drop(dropped)
    lanes.take(rows=1)
    assert [lane.units for lane in lanes.look().lanes] == [12]


def test_a_launch_is_closed_at_its_size_budget_but_never_empty(lanes: Lanes) -> None:
    sized(lanes, "a", 30, 30, 30, 90, 1)
    assert lanes.take_ids(units=64) == ["a0", "a1"]
    assert lanes.take_ids(units=64) == ["a2"]
    assert lanes.take_ids(units=64) == ["a3"]
    assert lanes.take_ids(units=64) == ["a4"]


def test_tenants_take_turns_however_many_calls_one_has(lanes: Lanes) -> None:
    sized(lanes, "a", *[1] * 10)
    sized(lanes, "b", 1, 1)
    assert sorted(lanes.take_ids(rows=4)) == ["a0", "a1", "b0", "b1"]


def test_turns_go_on_over_launches(lanes: Lanes) -> None:
    sized(lanes, "a", *[1] * 10)
    sized(lanes, "b", *[1] * 10)
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


def test_who_has_much_shares_no_launch_with_who_has_little(lanes: Lanes) -> None:
    sized(lanes, "a", *[30] * 20)
    lanes.take(units=120, bulk="apart")
    sized(lanes, "b", 10)
    assert lanes.take_ids(units=120, bulk="apart") == ["b0"]
    assert len(lanes.take_ids(units=120, bulk="apart")) == 4


def test_those_who_have_little_share_their_launches(lanes: Lanes) -> None:
    sized(lanes, "a", 10)
    sized(lanes, "b", 10)
    assert sorted(lanes.take_ids(units=120, bulk="apart")) == ["a0", "b0"]


def test_a_launch_that_overtakes_has_nothing_of_who_has_much(lanes: Lanes) -> None:
    sized(lanes, "a", *[30] * 20)
    before = lanes.look().last_launch_ms
    assert lanes.take_ids(units=120, bulk="none") == []
    assert lanes.look().last_launch_ms == before
    sized(lanes, "b", 10)
    assert lanes.take_ids(units=120, bulk="none") == ["b0"]


def test_a_launch_that_overtakes_has_nothing_of_whom_it_overtakes(lanes: Lanes) -> None:
    sized(lanes, "a", 10)
    sized(lanes, "b", 10)
    assert lanes.take_ids(units=120, bulk="none", without=("a",)) == ["b0"]
    assert lanes.take_ids(units=120, bulk="none", without=("a",)) == []


def test_calls_of_tenants_that_are_left_out_stay_in_any_launch(lanes: Lanes) -> None:
    sized(lanes, "a", 10, 10)
    sized(lanes, "b", 10, 10)
    assert lanes.take_ids(rows=2, without=("a",)) == ["b0", "b1"]
    assert lanes.take_ids(rows=2, without=("a", "c")) == []
    assert lanes.take_ids(rows=2) == ["a0", "a1"]
