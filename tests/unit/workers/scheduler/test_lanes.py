"""The items that wait in a worker."""

import pytest

from jobs.calls.lanes import ALONE, lane_name, lane_parts
from workers.scheduler.entries import Entry
from workers.scheduler.lanes import ItemLanes, ItemsWaiting


def entry(
    seq: int, lane: str = "{}/64", size: int = 1, owner: object = "job", arrived_s: float = 0.0
) -> Entry:
    return Entry(owner, seq, lane, lane_parts(lane)[1], size, None, arrived_s)


def lanes_with(*entries: Entry) -> ItemLanes:
    lanes = ItemLanes()
    lanes.put(entries)
    return lanes


def seqs(entries: list[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


def test_the_oldest_items_of_a_lane_are_taken_first() -> None:
    lanes = lanes_with(*map(entry, range(5)))
    assert seqs(lanes.take("{}/64", 3)) == [0, 1, 2]
    assert seqs(lanes.take("{}/64", 3)) == [3, 4]
    assert len(lanes) == 0
    assert lanes.waiting() == {}
    assert lanes.take("{}/64", 1) == []


def test_taking_stops_before_the_size_budget_is_exceeded() -> None:
    lanes = lanes_with(*(entry(n, size=30) for n in range(5)))
    assert seqs(lanes.take("{}/64", 5, max_units=90)) == [0, 1, 2]
    lanes = lanes_with(entry(0, size=100), entry(1))
    assert seqs(lanes.take("{}/64", 5, max_units=10)) == [0]


def test_waiting_tells_how_many_and_since_when() -> None:
    lanes = lanes_with(entry(0, arrived_s=3.0), entry(1, arrived_s=4.0), entry(2, "{}/16"))
    assert lanes.waiting() == {
        "{}/64": ItemsWaiting(2, 2, 3.0),
        "{}/16": ItemsWaiting(1, 1, 0.0),
    }


def test_items_that_ride_with_calls_come_from_their_lane_first_and_then_from_shorter_ones() -> None:
    lanes = lanes_with(entry(0, "{}/16"), entry(1, "{}/64"), entry(2, "{}/32"), entry(3, "{}/64"))
    assert seqs(lanes.take_fill("{}/64", 3)) == [1, 3, 0]
    assert seqs(lanes.take_fill("{}/64", 3)) == [2]


def test_no_longer_item_and_no_other_batch_key_rides_with_calls() -> None:
    other = lane_name({"normalize": False}, 16)
    lanes = lanes_with(entry(0, "{}/128"), entry(1, other))
    assert lanes.take_fill("{}/64", 10) == []
    assert len(lanes) == 2


def test_dropping_an_owner_leaves_the_items_of_others_in_their_order() -> None:
    mine, other = object(), object()
    lanes = lanes_with(
        entry(0, owner=other),
        entry(1, owner=mine),
        entry(2, owner=other),
        entry(3, "{}/16", owner=mine),
    )
    assert lanes.drop(mine) == 2
    assert lanes.waiting().keys() == {"{}/64"}
    assert seqs(lanes.take("{}/64", 5)) == [0, 2]


@pytest.mark.parametrize("params", [{}, {"normalize": True}, {"b": 1, "a": ["/", {"x": None}]}])
def test_a_lane_name_tells_its_parameters_and_its_bucket(params: dict[str, object]) -> None:
    assert lane_parts(lane_name(params, 64)) == (params, 64)


def test_a_lane_that_is_alone_or_of_a_cohort_has_the_same_parts_and_another_name() -> None:
    params = {"a": "x:{/"}
    lane = lane_name(params, 64, "canary#01890b2c")
    assert lane_parts(lane) == lane_parts(ALONE + lane) == (params, 64)
    assert len({lane, lane_name(params, 64, "control#01890b2c"), lane_name(params, 64)}) == 3
    assert lane_parts(ALONE + lane_name(params, 64)) == (params, 64)


def test_the_same_parameters_in_another_order_are_the_same_lane() -> None:
    assert lane_name({"a": 1, "b": 2}, 0) == lane_name({"b": 2, "a": 1}, 0)
