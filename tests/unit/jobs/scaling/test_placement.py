"""Placement of models on devices, what an overload misses, and the order in which workers drain."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.drain_order import drain_order
from jobs.scaling.placement.demand import Demand, Kind, Point, problems_of, rate_within
from jobs.scaling.placement.plan import MOST_USED, Placed, Plan, place
from jobs.scaling.placement.routing import served
from tests.support.cases import each

SMALL, LARGE = Kind("small", 16, 1.0), Kind("large", 80, 4.0)
KINDS = (SMALL, LARGE)


def demand(name: str, memory_gib: float, per_s: float, small: float, large: float) -> Demand:
    rates = {kind: rate for kind, rate in (("small", small), ("large", large)) if rate}
    return Demand(name, memory_gib, per_s, rates)


def drawn(seed: int, count: int = 20) -> list[Demand]:
    random = Random(seed)
    return [
        demand(f"m{n}@1", random.uniform(0.5, 14), random.uniform(1, 300), 100, 500)
        for n in range(count)
    ]


def check(plan: Plan, demands: list[Demand], kinds: tuple[Kind, ...] = KINDS) -> None:
    """Memory and time of each device suffice, and all work is placed."""
    by_name, by_model = {kind.name: kind for kind in kinds}, {its.model: its for its in demands}
    done = dict.fromkeys(by_model, 0.0)
    for device in plan.devices:
        memory = sum(by_model[model].memory_gib for model in device.load)
        assert memory <= by_name[device.kind].memory_gib + 1e-6
        assert sum(device.load.values()) <= MOST_USED + 1e-6
        for model, load in device.load.items():
            done[model] += load * by_model[model].rates[device.kind]
    for its in demands:
        assert done[its.model] + plan.unplaced.get(its.model, 0.0) == pytest.approx(its.per_s)
    assert plan.price == sum(by_name[device.kind].price for device in plan.devices)


def test_a_target_allows_launches_of_half_of_it_and_a_model_must_fit() -> None:
    points = [Point(1, 10, 100), Point(8, 40, 200), Point(32, 110, 290)]
    assert rate_within(points, 100) == 200
    assert rate_within(points, None) == 290
    assert rate_within(points, 15) == 0
    large = demand("large@1", 20, 1, small=100, large=0)
    [problem] = problems_of([large], KINDS)
    assert "large@1 fits no kind of device: it needs 20 GiB" in problem


def test_every_device_has_memory_and_time_for_what_is_on_it_and_relocation_saves_money() -> None:
    for seed, case in each(range(5)):
        with case:
            plan = place(drawn(seed), KINDS, rounds=100)
            assert plan.unplaced == {}
            check(plan, drawn(seed))
    prices = [place(drawn(1), KINDS, rounds=rounds).price for rounds in (300, 0)]
    assert prices[0] < prices[1]


def test_devices_of_the_cheapest_kind_are_shared_and_too_few_leave_work_unplaced() -> None:
    plan = place([demand(f"m{n}@1", 2, 9, 100, 500) for n in range(7)], KINDS)
    assert plan.counts == {"small": 1}
    assert plan.pools == [("small", tuple(f"m{n}@1" for n in range(7)), 1)]
    plan = place([demand("m@1", 2, 1000, small=100, large=500)], KINDS)
    assert plan.counts == {"large": 3}, "4 an hour for 333/s, in place of 1 for 67/s"
    kinds = (replace(SMALL, most=1), replace(LARGE, most=1))
    its = demand("m@1", 2, 1000, small=100, large=500)
    plan = place([its], kinds)
    assert plan.counts == {"large": 1, "small": 1}
    assert plan.unplaced == {"m@1": pytest.approx(1000 - MOST_USED * 600)}
    check(plan, [its], kinds)


# -- from what there is


def test_a_plan_changes_nothing_without_need_and_more_of_one_model_moves_no_other() -> None:
    demands = drawn(2)
    plan = place(demands, KINDS, rounds=100)
    later = place(demands, KINDS, plan.devices, at_s=1000.0, min_stay_s=600.0, rounds=100)
    if later.price == plan.price:
        assert homes(later) == homes(plan)
    else:
        assert later.price < plan.price
    demands = [demand("a@1", 2, 10, 100, 0), demand("b@1", 2, 10, 100, 0)]
    before = [Placed("small", {its.model: 0.1}, {its.model: 0.0}) for its in demands]
    for age_s, devices in ((100.0, 2), (700.0, 1)):
        later = place(demands, KINDS, before, at_s=age_s, min_stay_s=600.0)
        assert len(later.devices) == devices
    demands = [demand("a@1", 10, 60, 100, 0), demand("b@1", 10, 60, 100, 0)]
    plan = place(demands, KINDS)
    more = [replace(demands[0], per_s=130), demands[1]]
    later = place(more, KINDS, plan.devices, at_s=1000.0, min_stay_s=600.0)
    assert later.counts == {"small": 3}
    assert sorted(homes(plan)) == sorted(home for home in homes(later) if home[2] == 0)
    before = [Placed("small", {"a@1": 0.5, "gone@1": 0.1}, {"a@1": 0.0, "gone@1": 0.0})]
    plan = place([demand("a@1", 2, 50, 100, 0)], KINDS, before, at_s=1000.0)
    assert [device.models for device in plan.devices] == [("a@1",)]


def homes(plan: Plan) -> list[tuple[str, str, float]]:
    return sorted(
        (device.kind, model, since_s)
        for device in plan.devices
        for model, since_s in device.since_s.items()
    )


# -- more than was planned for


def test_calls_go_to_the_least_busy_device_with_their_model_and_no_more_than_it_can_do() -> None:
    demands = {
        its.model: its for its in (demand("a@1", 2, 70, 100, 0), demand("b@1", 2, 70, 100, 0))
    }
    devices = [
        Placed("small", {"a@1": 0.7}, {"a@1": 0.0}),
        Placed("small", {"a@1": 0.0, "b@1": 0.7}, {"a@1": 0.0, "b@1": 0.0}),
    ]
    assert served(devices, demands, {"a@1": 120, "b@1": 70}) == {
        "a@1": pytest.approx(120, rel=1e-3), "b@1": 70,
    }  # fmt: skip
    assert served(devices, demands, {"a@1": 70, "b@1": 120})["b@1"] == pytest.approx(100, rel=1e-3)
    its = demand("a@1", 2, 60, 100, 0)
    plan = place([its], KINDS)
    assert served(plan.devices, {"a@1": its}, {"a@1": 50})["a@1"] == pytest.approx(50)
    assert served(plan.devices, {"a@1": its}, {"a@1": 300})["a@1"] == pytest.approx(100)
    assert served([], {"a@1": its}, {"a@1": 300}) == {"a@1": 0}


def test_workers_go_by_what_would_be_lost_and_then_by_their_age() -> None:
    cases = [
        ({"old": ["a"], "new": ["a"], "newest": ["a"]}, [], ["newest", "new", "old"]),
        ({}, [], []),
        # Weights that only one worker has are last to go.
        ({"old": ["a"], "holder": ["a", "rare"], "new": ["a"]}, [], ["new", "old", "holder"]),
        # A copy counts until it has gone.
        ({"plain": ["a"], "one": ["a", "b"], "other": ["a", "b"]}, [], ["other", "plain", "one"]),
        # Copies in workers that stay count.
        ({"old": ["a"], "new": ["b"]}, [["b"]], ["new", "old"]),
        ({"old": ["a"], "new": ["b"]}, [["a"]], ["old", "new"]),
    ]
    for (held, staying, order), case in each(cases):
        with case:
            assert drain_order(held, staying) == order
    still_loading = drain_order({"loads": [], "new": ["a"], "rare": ["b"]})
    assert still_loading[0] == "loads", "it has nothing to lose"


@given(st.dictionaries(st.integers(), st.sets(st.sampled_from("abcde")), max_size=6))
def test_no_other_first_choice_loses_fewer_models(held: dict[int, set[str]]) -> None:
    order = drain_order(held)
    assert sorted(order) == sorted(held)
    if held:
        lost = {one: held[one] - set().union(*(held[o] for o in held if o != one)) for one in held}
        assert len(lost[order[0]]) == min(map(len, lost.values()))
