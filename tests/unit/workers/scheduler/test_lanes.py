"""The items that wait in a worker: each lane in its order, and whose are launched next."""

from collections import Counter
from typing import Any

import pytest

from jobs.calls.lanes import ALONE, lane_name, lane_parts
from tests.support.cases import each
from workers.scheduler.entries import Entry
from workers.scheduler.lanes import ItemLanes, ItemsWaiting

LANE = "{}/64"


def entry(seq: int, lane: str = LANE, *, owner: object = "job", **more: Any) -> Entry:
    size, arrived_s = more.pop("size", 1), more.pop("arrived_s", 0.0)
    return Entry(owner, seq, lane, lane_parts(lane)[1], size, None, arrived_s, **more)


def entries(tenant: str, count: int, **more: Any) -> list[Entry]:
    owner = tenant, more.get("place", ())
    return [entry(n, **{"owner": owner, "tenant": tenant, **more}) for n in range(count)]


def lanes_of(*waiting: list[Entry], sized: bool = False) -> ItemLanes:
    lanes = ItemLanes(sized=sized)
    for some in waiting:
        lanes.put(some)
    return lanes


def seqs(entries: list[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


def tenants(taken: list[Entry]) -> Counter[str]:
    return Counter(entry.tenant for entry in taken)


def test_the_oldest_items_of_a_lane_are_taken_first_within_the_size_budget() -> None:
    lanes = lanes_of(entries("a", 5))
    assert seqs(lanes.take(LANE, 3)) == [0, 1, 2]
    assert seqs(lanes.take(LANE, 3)) == [3, 4]
    assert len(lanes) == 0
    assert lanes.waiting() == {}
    assert lanes.take(LANE, 1) == []
    assert seqs(lanes_of(entries("a", 5, size=30)).take(LANE, 5, max_units=90)) == [0, 1, 2]
    assert seqs(lanes_of([entry(0, size=100), entry(1)]).take(LANE, 5, max_units=10)) == [0]


def test_waiting_tells_how_many_and_since_when_and_dropping_an_owner_leaves_the_others() -> None:
    lanes = lanes_of([entry(0, arrived_s=3.0), entry(1, arrived_s=4.0), entry(2, "{}/16")])
    assert lanes.waiting() == {LANE: ItemsWaiting(2, 2, 3.0), "{}/16": ItemsWaiting(1, 1, 0.0)}
    mine, other = object(), object()
    some = [entry(0, owner=other), entry(1, owner=mine), entry(2, owner=other)]
    lanes = lanes_of([*some, entry(3, "{}/16", owner=mine)])
    assert lanes.drop(mine) == 2
    assert lanes.waiting().keys() == {LANE}
    assert seqs(lanes.take(LANE, 5)) == [0, 2]


def test_items_that_ride_with_calls_come_from_their_lane_first_and_then_from_shorter_ones() -> None:
    other = lane_name({"normalize": False}, 16)
    waiting = ["{}/16", LANE, "{}/32", LANE, "{}/128", other]
    lanes = lanes_of([entry(n, lane) for n, lane in enumerate(waiting)])
    assert seqs(lanes.take_fill(LANE, 3)) == [1, 3, 0]
    assert seqs(lanes.take_fill(LANE, 3)) == [2]
    assert lanes.take_fill(LANE, 10) == [], "a longer one, and one of another batch key"
    assert len(lanes) == 2


def test_a_lane_name_tells_its_parameters_and_its_bucket_alone_or_of_any_cohort() -> None:
    for params, case in each([{}, {"n": True}, {"b": 1, "a": ["/", {"x": None}]}, {"a": "x:{/"}]):
        with case:
            names = [lane_name(params, 64, f"{lane}#01890b2c") for lane in ("canary", "control")]
            names.append(lane_name(params, 64))
            assert len(set(names)) == 3
            for name in names:
                assert lane_parts(name) == lane_parts(ALONE + name) == (params, 64)
    assert lane_name({"a": 1, "b": 2}, 0) == lane_name({"b": 2, "a": 1}, 0)


def test_who_comes_late_with_little_is_in_the_next_launch_and_its_lane_has_the_first_turn() -> None:
    lanes = lanes_of(entries("flood", 4000))
    lanes.take(LANE, 100)
    lanes.put(entries("light", 20))
    assert tenants(lanes.take(LANE, 100)) == {"light": 20, "flood": 80}
    lanes = lanes_of(entries("flood", 400))
    lanes.take(LANE, 100)
    lanes.put(entries("light", 2, lane="{}/16"))
    waiting = lanes.waiting()
    assert waiting["{}/16"].turn < waiting[LANE].turn


def test_launches_are_shared_by_weight_and_who_was_idle_has_saved_nothing_up() -> None:
    weights = {"one": 1, "two": 2, "four": 4}
    lanes = lanes_of(*(entries(tenant, 500, weight=n) for tenant, n in weights.items()))
    assert tenants(lanes.take(LANE, 70)) == {"one": 10, "two": 20, "four": 40}
    lanes = lanes_of(entries("busy", 1000), entries("idle", 1))
    lanes.take(LANE, 500)
    lanes.put(entries("idle", 300))
    assert tenants(lanes.take(LANE, 100)) == {"busy": 50, "idle": 50}


@pytest.mark.parametrize(("sized", "short"), [(True, 80), (False, 50)])
def test_turns_are_counted_in_what_the_device_spends(sized: bool, short: int) -> None:
    lanes = lanes_of(entries("short", 500, size=10), entries("long", 500, size=40), sized=sized)
    assert tenants(lanes.take(LANE, 100))["short"] == short


def test_of_one_tenant_the_first_in_place_goes_first_and_a_slice_in_order() -> None:
    first = [entries("a", 2, place=(1,)), entries("a", 2, place=(1,))[1:]]
    taken = lanes_of(entries("a", 3, place=(2,)), *first).take(LANE, 10)
    assert [entry.place[0] for entry in taken] == [1, 1, 1, 2, 2, 2]
    assert seqs(taken) == [0, 1, 1, 0, 1, 2]


def test_who_has_nothing_left_is_dropped_without_moving_anything() -> None:
    """A claim of 500 jobs of one item ends in 500 drops, beside thousands that wait."""

    class Owner:
        compared = 0

        def __eq__(self, other: object) -> bool:
            Owner.compared += 1
            return self is other

        __hash__ = object.__hash__

    mine = Owner()
    lanes = lanes_of(entries("a", 3000, owner=mine))
    for _ in range(500):
        assert lanes.drop(Owner()) == 0
    assert Owner.compared < 500
    assert lanes.drop(mine) == 3000
    lanes.put(entries("a", 3))
    lanes.put(entries("b", 2))
    assert lanes.drop(("b", ())) == 2
    assert lanes.waiting()[LANE].rows == 3
    assert lanes.drop(("a", ())) == 3
    assert not lanes.waiting()


@pytest.mark.parametrize("sized", [False, True])
def test_what_is_taken_together_is_charged_as_if_it_were_taken_one_by_one(sized: bool) -> None:
    def then_with_another(*steps: int) -> list[tuple[str, int]]:
        lanes = lanes_of(
            entries("a", 20, size=3, weight=2.0, place=(1,)),
            entries("a", 20, size=5, weight=2.0, place=(2,)),
            sized=sized,
        )
        for rows in steps:
            lanes.take(LANE, rows)
        lanes.put(entries("b", 30, size=2))
        return [(entry.tenant, entry.seq) for entry in lanes.take(LANE, 40)]

    assert then_with_another(25) == then_with_another(*[1] * 25)
