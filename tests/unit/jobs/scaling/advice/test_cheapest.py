"""Workers that leave items to cheaper ones, by what all of them offer."""

from collections.abc import Collection

import pytest

from jobs.scaling.advice.cheapest import leaving
from jobs.scaling.advice.offers import Offer

CHEAP = Offer("cheap", "l4", 1.0, item_s=0.02, drain_s=100.0)
DEAR = Offer("dear", "h100", 6.0, item_s=0.01, drain_s=50.0)  # three times the cost of an item


@pytest.mark.parametrize(
    ("left_s", "before", "leaves"),
    [
        (None, (), True),  # no job: whatever comes is for the cheap one
        (145.0, (), True),  # 100 s are 69 % of it
        (140.0, (), False),
        (115.0, ("dear",), True),  # goes on with it until 90 %
        (110.0, ("dear",), False),
        (0.0, ("dear",), False),
        (-60.0, (), False),
    ],
)
def test_a_dear_worker_leaves_items_as_long_as_the_cheap_one_is_in_time(
    left_s: float | None, before: Collection[str], leaves: bool
) -> None:
    assert leaving([DEAR, CHEAP], left_s, before) == ({"dear"} if leaves else set())


def test_only_as_many_dear_workers_take_part_as_are_needed() -> None:
    dear = [Offer(f"dear-{n}", "h100", 6.0, 0.01, 50.0) for n in range(4)]
    assert leaving([CHEAP, *dear], 100.0) == {"dear-1", "dear-2", "dear-3"}
    assert leaving([CHEAP, *dear], 30.0) == {"dear-2", "dear-3"}
    assert leaving(dear[1:], 100.0) == set()  # the cheap one is gone


def test_a_quick_worker_may_be_the_cheaper_one_at_a_higher_price() -> None:
    quick = Offer("quick", "h100", 6.0, item_s=0.002, drain_s=10.0)
    assert leaving([CHEAP, quick], 300.0) == {"cheap"}


def test_workers_that_cost_nearly_the_same_all_take_part() -> None:
    other = Offer("other", "l40", 1.2, 0.02, 100.0)
    assert leaving([CHEAP, other], None) == set()


def test_nothing_that_waits_is_done_at_once() -> None:
    idle = [Offer(one.worker, one.pool, one.price, one.item_s, 0.0) for one in (CHEAP, DEAR)]
    assert leaving(idle, 5.0) == {"dear"}
    assert leaving(idle, -5.0) == set()
    assert leaving([], None) == set()
