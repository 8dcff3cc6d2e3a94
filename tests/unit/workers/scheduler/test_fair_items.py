"""Whose items are launched next of those that a worker has in hand."""

from collections import Counter
from dataclasses import replace

import pytest

from workers.scheduler.entries import Entry, Place
from workers.scheduler.lanes import ItemLanes

LANE = "{}/0"


def entries(
    tenant: str, count: int, *, size: int = 1, weight: float = 1.0, place: Place = ()
) -> list[Entry]:
    owner = tenant, place
    return [Entry(owner, n, LANE, 0, size, None, 0.0, tenant, weight, place) for n in range(count)]


def lanes_of(*waiting: list[Entry], sized: bool = False) -> ItemLanes:
    lanes = ItemLanes(sized=sized)
    for some in waiting:
        lanes.put(some)
    return lanes


def tenants(taken: list[Entry]) -> Counter[str]:
    return Counter(entry.tenant for entry in taken)


def test_who_comes_late_with_little_is_in_the_next_launch() -> None:
    lanes = lanes_of(entries("flood", 4000))
    lanes.take(LANE, 100)
    lanes.put(entries("light", 20))
    assert tenants(lanes.take(LANE, 100)) == {"light": 20, "flood": 80}


def test_the_lane_of_the_tenant_with_least_has_the_first_turn() -> None:
    lanes = lanes_of(entries("flood", 400))
    lanes.take(LANE, 100)
    light = entries("light", 2)
    for entry in light:
        entry.lane = "{}/16"
    lanes.put(light)
    waiting = lanes.waiting()
    assert waiting["{}/16"].turn < waiting[LANE].turn


def test_launches_are_shared_by_weight() -> None:
    lanes = ItemLanes()
    for tenant, weight in (("one", 1), ("two", 2), ("four", 4)):
        lanes.put(entries(tenant, 500, weight=weight))
    assert tenants(lanes.take(LANE, 70)) == {"one": 10, "two": 20, "four": 40}


@pytest.mark.parametrize(("sized", "short"), [(True, 80), (False, 50)])
def test_turns_are_counted_in_what_the_device_spends(sized: bool, short: int) -> None:
    lanes = lanes_of(entries("short", 500, size=10), entries("long", 500, size=40), sized=sized)
    assert tenants(lanes.take(LANE, 100))["short"] == short


def test_who_was_idle_has_saved_nothing_up() -> None:
    lanes = lanes_of(entries("busy", 1000), entries("idle", 1))
    lanes.take(LANE, 500)
    lanes.put(entries("idle", 300))
    assert tenants(lanes.take(LANE, 100)) == {"busy": 50, "idle": 50}


def test_of_one_tenant_the_first_in_place_goes_first_and_a_slice_in_order() -> None:
    lanes = lanes_of(
        entries("a", 3, place=(2,)), entries("a", 2, place=(1,)), entries("a", 2, place=(1,))[1:]
    )
    taken = lanes.take(LANE, 10)
    assert [(entry.place, entry.seq) for entry in taken] == [
        ((1,), 0), ((1,), 1), ((1,), 1), ((2,), 0), ((2,), 1), ((2,), 2),
    ]  # fmt: skip


def test_what_is_dropped_leaves_the_others_in_their_order() -> None:
    lanes = lanes_of(entries("a", 3), entries("b", 3))
    assert lanes.drop(("a", ())) == 3
    assert [entry.seq for entry in lanes.take(LANE, 5)] == [0, 1, 2]
    assert not lanes.waiting()


def test_who_has_nothing_left_is_dropped_without_moving_anything() -> None:
    """A claim of 500 jobs of one item ends in 500 drops, beside thousands that wait."""

    class Owner:
        compared = 0

        def __eq__(self, other: object) -> bool:
            Owner.compared += 1
            return self is other

        __hash__ = object.__hash__

    lanes, mine = ItemLanes(), Owner()
    lanes.put(replace(entry, owner=mine) for entry in entries("a", 3000))
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
