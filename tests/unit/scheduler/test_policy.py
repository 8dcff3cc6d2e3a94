"""When a launch leaves, from which lane, and why: on made-up times."""

from math import inf

import pytest

from jobs.calls.lanes import ALONE
from jobs.registry import Limits
from tests.unit.scheduler.measured import measured
from workers.scheduler.latency import LatencyModel
from workers.scheduler.policy import (
    FILL_SHARE,
    Flush,
    LaneView,
    PoolView,
    Wait,
    decide,
    fill_rows,
    most_rows,
)

FIXED = measured(0.1, 0)  # 100 ms whatever it gets: its knee is 90 of 100 rows
LIMITS = Limits(max_batch=100, window_ms=20)
JUST_LAUNCHED = PoolView(last_launch_s=0.0, last_took_s=0.6, replicas=6)  # paced: from 0.1 s on


def reason(
    now_s: float,
    view: LaneView,
    pool: PoolView = JUST_LAUNCHED,
    latency: LatencyModel = FIXED,
    draining: bool = False,
) -> str:
    decision = decide(now_s, [view], pool, latency, LIMITS, draining=draining)
    assert isinstance(decision, Flush), decision
    return decision.reason


def calls(count: int, due_s: float = 10.0, lane: str = "{}/0", bucket: int = 0) -> LaneView:
    return LaneView(lane, bucket, calls=count, calls_due_s=due_s)


def items(count: int, since_s: float = 0.0, lane: str = "{}/0", bucket: int = 0) -> LaneView:
    return LaneView(lane, bucket, items=count, items_since_s=since_s)


def test_nothing_waiting_is_waited_for_without_an_end() -> None:
    assert decide(5.0, [], PoolView(), FIXED, LIMITS) == Wait(inf)


# -- calls


def test_as_many_calls_as_a_launch_takes_leave_as_full() -> None:
    assert reason(0.01, calls(100)) == "full"


def test_a_call_leaves_when_one_more_row_would_make_it_late() -> None:
    assert reason(0.0501, calls(1, due_s=0.15)) == "deadline"
    assert decide(0.04, [calls(1, due_s=0.15)], JUST_LAUNCHED, FIXED, LIMITS) == Wait(
        pytest.approx(0.05)
    )


def test_the_row_that_might_still_come_counts_for_the_deadline() -> None:
    by_rows = measured(0.01, 0.001)  # 9 rows: 19 ms, 10 rows: 20 ms
    assert reason(0.9805, calls(9, due_s=1.0), PoolView(0.9, 1.0), by_rows) == "deadline"


def test_calls_leave_at_the_knee() -> None:
    assert reason(0.01, calls(90)) == "knee"
    assert isinstance(decide(0.01, [calls(89)], JUST_LAUNCHED, FIXED, LIMITS), Wait)


@pytest.mark.parametrize("replicas", [1, 2, 6])
def test_replicas_launch_evenly_spaced_over_one_launch_time(replicas: int) -> None:
    pool = PoolView(last_launch_s=7.0, last_took_s=0.12, replicas=replicas)
    paced_s = 7.0 + 0.12 / replicas
    assert reason(paced_s, calls(1), pool) == "pace"
    assert decide(paced_s - 0.001, [calls(1)], pool, FIXED, LIMITS) == Wait(paced_s)


def test_the_first_call_of_an_idle_pool_leaves_at_once() -> None:
    assert reason(0.0, calls(1), PoolView()) == "pace"


def test_a_pool_that_counts_no_replica_is_paced_as_one() -> None:
    pool = PoolView(last_launch_s=0.0, last_took_s=0.1, replicas=0)
    assert decide(0.05, [calls(1)], pool, FIXED, LIMITS) == Wait(0.1)


def test_calls_wait_for_nothing_while_draining() -> None:
    assert reason(0.01, calls(1), draining=True) == "drain"


def test_calls_that_run_alone_leave_at_once_and_one_at_a_time() -> None:
    decision = decide(0.0, [calls(3, lane=ALONE + "{}/0")], JUST_LAUNCHED, FIXED, LIMITS)
    assert isinstance(decision, Flush)
    assert (decision.rows, decision.reason) == (1, "full")


# -- items


def test_as_many_items_as_a_launch_takes_leave_as_full() -> None:
    assert reason(0.0, items(100)) == "full"


def test_items_wait_for_the_window_and_leave_at_its_end() -> None:
    assert decide(3.01, [items(1, since_s=3.0)], PoolView(), FIXED, LIMITS) == Wait(3.02)
    assert reason(3.02, items(1, since_s=3.0)) == "deadline"


def test_items_leave_at_the_knee() -> None:
    assert reason(0.0, items(90)) == "knee"


def test_items_are_not_paced() -> None:
    long_ago = PoolView(last_launch_s=-100.0, last_took_s=0.1, replicas=6)
    assert isinstance(decide(0.01, [items(89)], long_ago, FIXED, LIMITS), Wait)


def test_items_wait_for_nothing_while_draining() -> None:
    assert reason(0.0, items(1), draining=True) == "drain"


# -- lanes


def test_calls_go_before_items() -> None:
    full_of_items, one_call = items(100, lane="a/0"), calls(1, lane="b/0")
    decision = decide(0.2, [full_of_items, one_call], JUST_LAUNCHED, FIXED, LIMITS)
    assert decision == Flush(one_call, 100, "pace")


def test_of_two_lanes_of_calls_the_one_that_must_leave_first_does() -> None:
    by_size = measured(0.01, 0.0001)
    short = calls(1, due_s=0.500, lane="{}/16", bucket=16)
    long = calls(1, due_s=0.510, lane="{}/256", bucket=256)  # takes 48 ms longer for its two rows
    decision = decide(1.0, [short, long], PoolView(), by_size, LIMITS)
    assert isinstance(decision, Flush)
    assert decision.view is long


@pytest.mark.parametrize("young_items", [5, 100])
def test_of_lanes_of_items_the_oldest_goes_first_full_or_not(young_items: int) -> None:
    old = items(5, since_s=0.0, lane="a/0")
    young = items(young_items, since_s=0.9, lane="b/0")
    decision = decide(1.0, [young, old], PoolView(), FIXED, LIMITS)
    assert decision == Flush(old, 100, "deadline")


def test_a_full_lane_does_not_wait_for_the_window_of_an_older_one() -> None:
    old, young = items(5, since_s=0.99, lane="a/0"), items(100, since_s=0.995, lane="b/0")
    assert decide(1.0, [old, young], PoolView(), FIXED, LIMITS) == Flush(young, 100, "full")


def test_lanes_that_may_not_leave_wait_for_the_first_window_to_end() -> None:
    views = [items(5, since_s=0.995, lane="a/0"), items(5, since_s=0.99, lane="b/0")]
    assert decide(1.0, views, PoolView(), FIXED, LIMITS) == Wait(pytest.approx(1.01))


# -- rows


@pytest.mark.parametrize(
    ("bucket", "rows"), [(0, 64), (4, 64), (16, 32), (256, 2), (512, 1), (1024, 1)]
)
def test_rows_of_a_launch_keep_to_the_row_limit_and_to_the_size_budget(
    bucket: int, rows: int
) -> None:
    assert most_rows(bucket, Limits(max_batch=64, max_tokens=512)) == rows


def test_without_a_size_budget_the_row_limit_alone_holds() -> None:
    assert most_rows(256, Limits(max_batch=64)) == 64


def test_a_lane_is_full_by_its_size_budget() -> None:
    limits = Limits(max_batch=64, max_tokens=512)
    view = calls(2, lane="{}/256", bucket=256)
    assert decide(0.0, [view], JUST_LAUNCHED, FIXED, limits) == Flush(view, 2, "full")


# -- items that ride with calls


def test_items_fill_a_launch_of_fixed_cost_to_the_row_limit() -> None:
    assert fill_rows(3, 1.0, 0, FIXED, LIMITS) == 97


def test_no_item_rides_with_calls_that_are_due_before_the_launch_ends() -> None:
    assert fill_rows(3, 0.099, 0, FIXED, LIMITS) == 0


def test_items_lengthen_a_launch_by_a_share_of_it_at_most() -> None:
    latency = measured(0.0105, 0.001)  # 10 calls: 20.5 ms; 2 items more: 2 ms more
    assert FILL_SHARE == 0.1
    assert fill_rows(10, 1.0, 0, latency, LIMITS) == 2


def test_items_lengthen_a_short_launch_by_a_millisecond_at_most() -> None:
    latency = measured(0.001, 0.000095)
    assert fill_rows(1, 1.0, 0, latency, LIMITS) == 10


def test_items_ride_only_within_the_slack_of_the_calls() -> None:
    latency = measured(0.0105, 0.001)
    assert fill_rows(10, 0.0218, 0, latency, LIMITS) == 1


def test_a_full_launch_of_calls_takes_no_item() -> None:
    assert fill_rows(100, 1.0, 0, FIXED, LIMITS) == 0
    assert fill_rows(2, 1.0, 256, FIXED, Limits(max_batch=64, max_tokens=512)) == 0
