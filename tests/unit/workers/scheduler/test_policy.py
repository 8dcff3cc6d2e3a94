"""When a launch leaves, from which lane, and why: on made-up times."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from jobs.calls.lanes import ALONE
from jobs.models.model import Limits
from tests.unit.workers.scheduler.measured import measured
from workers.scheduler.cost import LaunchSize
from workers.scheduler.latency import LatencyModel
from workers.scheduler.policy import FILL_SHARE, FILL_TARGET, Flush, LaunchPolicy, Wait
from workers.scheduler.snapshot import EXPECTED_S, LaneView, PoolView, Rules

FIXED = measured(0.1, 0)  # 100 ms whatever it gets: its knee is 90 of 100 rows
RULES = Rules(Limits(max_batch=100, window_ms=20), target_s=0.2, margin_s=0.01)
# Six slots, one busy call after the other: even spacing is 0.1 s, and a lane's first call waits for
# nearly all of it.
JUST_LAUNCHED = PoolView(0.0, 0.6, slots=6, other_free_s=0.0, called_s=0.0, gap_s=0.01)
QUIET = PoolView(last_launch_s=0.0, last_took_s=0.6, slots=6)  # no call is expected
PADDED = Rules(Limits(max_batch=64, max_tokens=512), pads=True)
PACKED = replace(PADDED, pads=False)


def decide(
    now_s: float,
    lanes: Sequence[LaneView],
    pool: PoolView = JUST_LAUNCHED,
    latency: LatencyModel = FIXED,
    rules: Rules = RULES,
    **more: Any,
) -> Flush | Wait:
    return LaunchPolicy(latency, rules).decide(now_s, lanes, pool, **more)


def leaves(*asked: Any, **more: Any) -> Flush:
    """The launch that leaves now."""
    decision = decide(*asked, **more)
    assert isinstance(decision, Flush), decision
    return decision


def reason(now_s: float, view: LaneView, *asked: Any, **more: Any) -> str:
    return leaves(now_s, [view], *asked, **more).reason


def gap_s(now_s: float, pool: PoolView, calls_s: float) -> float:
    return LaunchPolicy(FIXED, RULES).gap_s(now_s, pool, calls_s)


def calls(count: int, due_s: float = 10.0, lane: str = "{}/0", bucket: int = 0) -> LaneView:
    size = count * (bucket or 1)
    return LaneView(lane, bucket, calls=count, calls_units=size, calls_due_s=due_s)


def items(count: int, since_s: float = 0.0, lane: str = "{}/0", bucket: int = 0) -> LaneView:
    size = count * (bucket or 1)
    return LaneView(lane, bucket, items=count, items_units=size, items_since_s=since_s)


def test_nothing_waiting_is_waited_for_without_an_end_and_calls_below_the_knee_wait() -> None:
    assert decide(5.0, [], PoolView()) == Wait(inf)
    assert isinstance(decide(0.01, [calls(89)]), Wait)


# -- calls


def test_the_lane_whose_tenant_had_least_leaves_first_of_those_that_may() -> None:
    burst = replace(calls(100, due_s=1.0, lane="{}/256"), calls_turn=8.0)
    light = replace(calls(100, due_s=2.0, lane="{}/16"), calls_turn=2.0)
    assert leaves(0.5, [burst, light]).view == light
    full = replace(calls(100, lane="{}/256"), calls_turn=8.0)
    waits = replace(calls(1, lane="{}/16"), calls_turn=2.0)
    assert leaves(0.0, [full, waits]).view == full
    old = replace(items(100, since_s=0.0, lane="{}/256"), items_turn=8.0)
    young = replace(items(100, since_s=1.0, lane="{}/16"), items_turn=2.0)
    assert leaves(5.0, [old, young], QUIET).view.lane == young.lane


@pytest.mark.parametrize(
    ("now_s", "view", "pool", "draining", "said"),
    [
        (0.01, calls(100), JUST_LAUNCHED, False, "full"),
        (0.01, calls(90), JUST_LAUNCHED, False, "knee"),
        (0.01, calls(1), JUST_LAUNCHED, True, "drain"),
        (0.05, calls(1, due_s=0.25), PoolView(0.0, 0.1, slots=1, gap_s=0.001), False, "pace"),
        (0.0, calls(1, due_s=0.2), PoolView(slots=6), False, "pace"),  # a pool that is idle
        (0.0, items(100), QUIET, False, "full"),
        (0.0, items(90), QUIET, False, "knee"),
        (0.0, items(1), JUST_LAUNCHED, True, "drain"),
        # Items are not paced while no call is expected.
        (0.001, items(100), replace(JUST_LAUNCHED, called_s=-EXPECTED_S), False, "full"),
    ],
)
def test_a_launch_leaves_for_its_reason(
    now_s: float, view: LaneView, pool: PoolView, draining: bool, said: str
) -> None:
    assert reason(now_s, view, pool, draining=draining) == said


def test_a_call_leaves_when_one_more_row_would_make_it_late() -> None:
    slow = replace(JUST_LAUNCHED, last_took_s=1.2)  # even spacing would be 0.2 s
    first = calls(1, due_s=0.2)
    assert reason(0.1001, first, slow) == "deadline"
    assert decide(0.09, [first], slow) == Wait(pytest.approx(0.1))
    by_rows = measured(0.01, 0.001)  # 9 rows: 19 ms, 10 rows: 20 ms
    pool = PoolView(0.9, 1.0, slots=2, gap_s=0.001)
    assert reason(0.9805, calls(9, due_s=1.0), pool, by_rows) == "deadline"


def wait_s(slots: int, gap_s: float, other_free_s: float = 0.0) -> float:
    """How long the first call waits for others in a pool that has just launched."""
    pool = PoolView(7.0, 0.12, slots, other_free_s=other_free_s, gap_s=gap_s)
    first = calls(1, due_s=7.2)  # came at 7.0
    decision = decide(7.0, [first], pool)
    if isinstance(decision, Flush):
        return 0.0
    assert reason(decision.until_s, first, pool) == "pace"
    return decision.until_s - 7.0


@pytest.mark.parametrize("slots", [2, 6])
def test_a_first_call_waits_the_longer_the_more_calls_there_are(slots: int) -> None:
    spacing_s = 0.12 / slots
    waits_s = [wait_s(slots, gap_s) for gap_s in (inf, 1.0, 0.1, 0.02, 0.001, 0.0001)]
    assert waits_s == sorted(waits_s)
    assert waits_s[0] == 0
    assert waits_s[1] < 0.02 * spacing_s
    assert waits_s[-1] == pytest.approx(spacing_s, rel=0.01)


def test_a_call_waits_for_company_by_what_that_saves_but_the_last_idle_slot_keeps_its_spacing() -> (
    None
):
    half = measured(0.05, 0.05)  # a second row takes half as long again
    pool = PoolView(7.0, 0.12, 2, other_free_s=0.0, gap_s=0.0001)
    until_s = pytest.approx(7.0 + 0.5 * 0.06, rel=0.01)
    assert decide(7.0, [calls(1, due_s=7.2)], pool, half) == Wait(until_s)
    assert wait_s(6, 10.0, other_free_s=7.05) == pytest.approx(0.02)
    assert wait_s(6, 10.0) == pytest.approx(0, abs=1e-4)


def test_calls_that_items_would_fill_up_leave_evenly_spaced_and_go_before_items() -> None:
    both = LaneView("{}/0", 0, calls=1, calls_units=1, calls_due_s=10.0, items=90, items_since_s=0)
    assert decide(0.09, [both]) == Wait(pytest.approx(0.1))
    assert reason(0.1, both) == "pace"
    full_of_items, one_call = items(100, lane="a/0"), calls(1, lane="b/0")
    assert decide(0.2, [full_of_items, one_call]) == Flush(one_call, 100, 0, "pace")


def test_calls_that_run_alone_leave_at_once_and_one_at_a_time() -> None:
    decision = leaves(0.0, [calls(3, lane=ALONE + "{}/0")])
    assert (decision.rows, decision.reason) == (1, "full")


# -- items, and lanes of both


def test_of_two_lanes_of_calls_the_one_that_must_leave_first_does() -> None:
    by_size = measured(0.01, 0.0001, by_size=True)
    short = calls(1, due_s=0.500, lane="{}/16", bucket=16)
    long = calls(1, due_s=0.510, lane="{}/256", bucket=256)  # takes 48 ms longer for its two rows
    assert leaves(1.0, [short, long], PoolView(), by_size).view is long


@pytest.mark.parametrize("young_items", [5, 100])
def test_of_lanes_of_items_the_oldest_goes_first_full_or_not(young_items: int) -> None:
    old = items(5, since_s=0.0, lane="a/0")
    young = items(young_items, since_s=0.9, lane="b/0")
    assert decide(1.0, [young, old], PoolView()) == Flush(old, 100, 0, "deadline")


def test_items_wait_for_the_first_window_to_end_unless_another_lane_is_full() -> None:
    assert decide(3.01, [items(1, since_s=3.0)], PoolView()) == Wait(3.02)
    assert reason(3.02, items(1, since_s=3.0)) == "deadline"
    views = [items(5, since_s=0.995, lane="a/0"), items(5, since_s=0.99, lane="b/0")]
    assert decide(1.0, views, PoolView()) == Wait(pytest.approx(1.01))
    old, young = items(5, since_s=0.99, lane="a/0"), items(100, since_s=0.995, lane="b/0")
    assert decide(1.0, [old, young], PoolView()) == Flush(young, 100, 0, "full")


# -- gaps

BUSY = PoolView(last_launch_s=0.0, last_took_s=0.1, slots=1, called_s=0.0, gap_s=1.0)
LINEAR = measured(0.01, 0.001)  # 100 rows: 110 ms


def test_items_run_alone_between_calls_only_as_long_as_a_call_could_wait() -> None:
    """Target 200 ms, less 10 ms of margin, less 100 ms for the calls: 80 rows in 90 ms."""
    decision = leaves(5.0, [items(100)], BUSY, LINEAR, calls_s=0.1)
    assert (decision.rows, decision.reason) == (pytest.approx(80, abs=1), "full")


def test_a_launch_that_no_gap_is_long_enough_for_waits_until_no_call_is_expected() -> None:
    slow = measured(0.095, 0)
    decision = decide(5.0, [items(100)], BUSY, slow, calls_s=0.1)
    assert decision == Wait(BUSY.called_s + EXPECTED_S)
    assert reason(EXPECTED_S, items(100), BUSY, slow) == "full"


def test_items_may_take_as_long_as_calls_that_no_target_helps_or_while_another_slot_is_free() -> (
    None
):
    assert gap_s(5.0, BUSY, 0.18) == pytest.approx(0.01)
    assert gap_s(5.0, BUSY, 2.0) == pytest.approx(2.2)
    pool = PoolView(last_took_s=0.1, slots=2, called_s=0.0, gap_s=1.0, other_free_s=5.05)
    assert gap_s(5.0, pool, 0.1) == inf
    assert gap_s(4.9, pool, 0.1) == pytest.approx(0.09)
    slow = measured(0.12, 0)
    assert reason(5.0, items(100), pool, slow) == "full"
    decision = decide(4.9, [items(100)], pool, slow, calls_s=0.1)
    assert decision == Wait(pytest.approx(5.05 - 0.09))


def test_items_are_evenly_spaced_among_calls_or_short_where_their_cost_grows_with_them() -> None:
    assert decide(0.05, [items(100)]) == Wait(pytest.approx(0.1))
    pool = replace(JUST_LAUNCHED, other_free_s=9.0)
    decision = leaves(0.05, [items(100)], pool, LINEAR, calls_s=0.1)
    assert decision.rows == pytest.approx(80, abs=1)


@pytest.mark.parametrize(("rest_s", "rows"), [(0.0, 100), (0.02, 65), (0.07, 100), (0.1, 34)])
def test_two_slots_of_items_end_in_turn_while_calls_are_expected(rest_s: float, rows: int) -> None:
    """A full launch takes 110 ms: the next one ends 55 ms before or after the other slot's."""
    pool = replace(BUSY, slots=2, other_free_s=5.0 + rest_s)
    assert leaves(5.0, [items(100)], pool, LINEAR).rows == pytest.approx(rows, abs=1)
    assert leaves(EXPECTED_S, [items(100)], pool, LINEAR).rows == 100, "no call is expected"
    owed = leaves(5.0, [items(100)], pool, LINEAR, draining=True)
    assert owed.rows == 100


def test_items_that_are_owed_a_launch_go_before_calls_and_are_short_among_them() -> None:
    lanes = [calls(100, due_s=0.0), items(100, lane="b/0")]
    assert leaves(5.0, lanes, BUSY, calls_s=0.1).view.lane == "{}/0"
    owed = leaves(5.0, lanes, BUSY, calls_s=0.1, owed=True)
    assert (owed.view.lane, owed.rows) == ("b/0", 100)
    lanes[0] = calls(50, due_s=9.0)
    owed = leaves(5.0, lanes, BUSY, LINEAR, calls_s=0.1, owed=True)
    assert (owed.view.lane, owed.rows) == ("b/0", 2)  # 11 ms for one, a tenth more for the next


# -- rows


def test_rows_that_pad_keep_to_the_row_limit_and_others_to_their_sizes_together() -> None:
    most = {0: 64, 4: 64, 16: 32, 256: 2, 512: 1, 1024: 1}
    assert {bucket: PADDED.most_rows(bucket) for bucket in most} == most
    assert PADDED.most_units == 0
    assert (PACKED.most_rows(256), PACKED.most_units) == (64, 512)
    assert PACKED.full_rows(LaneView("{}/64", 64, calls=2, calls_units=100)) == 10
    assert Rules(Limits(max_batch=64), pads=True).most_rows(256) == 64, "no size budget"


@pytest.mark.parametrize(("rules", "rows", "units"), [(PADDED, 2, 0), (PACKED, 64, 512)])
def test_a_lane_is_full_by_its_rows_where_it_pads_and_else_by_its_sizes(
    rules: Rules, rows: int, units: int
) -> None:
    view = calls(2, lane="{}/256", bucket=256)
    assert decide(0.0, [view], rules=rules) == Flush(view, rows, units, "full")


# -- items that ride with calls


def fill(
    calls: int, slack_s: float, latency: LatencyModel = FIXED, most: int = 100, units: int = 0
) -> int:
    policy = LaunchPolicy(latency, replace(RULES, target_s=0.01))  # 1.5 ms may be added
    row = LaunchSize.alike(1, 1)
    return policy.fill_rows(LaunchSize.alike(calls, 1), slack_s, row, most, units)


def test_items_fill_a_launch_of_calls_as_far_as_limits_and_calls_allow() -> None:
    assert (FILL_SHARE, FILL_TARGET) == (0.1, 0.08)
    assert fill(3, 1.0) == 97, "the row limit"
    assert fill(100, 1.0) == 0
    assert fill(3, 1.0, units=40) == 37, "the size budget"
    assert fill(3, 0.099) == 0, "calls that are due before the launch ends"
    # 10 calls take 50.5 ms: with 5 items a tenth more.
    assert fill(10, 1.0, measured(0.0405, 0.001)) == 5
    assert fill(1, 1.0, measured(0.001, 0.000095)) == 8, "a share of the target"
    assert fill(10, 0.0218, measured(0.0105, 0.001)) == 1, "the slack of the calls"
