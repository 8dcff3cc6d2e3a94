"""Workers that differ in speed: what each of them sees and takes, and which calls are let in."""

from dataclasses import replace

import pytest

from jobs.calls.lanes import Terms
from jobs.calls.messages import Call
from jobs.calls.profile import Profile, Times
from jobs.calls.tiers.tier import Speed, Tier
from tests.integration.jobs.calls.made import Lanes

FAST, SLOW = Speed(50.0, 12.0), Speed(250.0, 62.0)
#: Of a call that a fast launch answers in 50 ms and a slow one in 250, four at a time.
MIXED = Terms(
    allowed_ms=500, one_ms=50, full_rows=4, full_ms=50,
    others=(Terms(allowed_ms=500, one_ms=250, full_rows=4, full_ms=250),),
)  # fmt: skip
LEAST = {64: 300.0}  # of the slow one


@pytest.fixture
def mixed(launched: Lanes) -> Lanes:
    """A fast worker, worker-1, beside a slow one."""
    launched.lanes.announce("worker-1", 60, speed=FAST, profile=packed(50.0))
    launched.lanes.announce("slow", 60, speed=SLOW, profile=packed(250.0))
    return launched


def packed(launch_ms: float) -> bytes:
    return Profile(0.0, {64: Times(4, launch_ms, launch_ms)}).pack()


def tiers(lanes: Lanes) -> list[Tier]:
    return list(lanes.look().tiers)


def test_workers_that_are_alike_have_no_tiers(launched: Lanes) -> None:
    launched.lanes.announce("worker-1", 60, speed=FAST)
    assert tiers(launched) == []
    launched.lanes.announce("worker-2", 60, speed=replace(FAST, launch_ms=70.0))
    assert tiers(launched) == []


def test_tiers_are_of_ready_workers_and_the_fastest_is_first(mixed: Lanes) -> None:
    mixed.lanes.announce("third", 60, speed=replace(SLOW, launch_ms=260.0))
    fast, slow = tiers(mixed)
    assert (fast.launch_ms, list(fast.workers)) == (50, ["worker-1"])
    assert (slow.launch_ms, slow.row_cost, sorted(slow.workers)) == (250, 62, ["slow", "third"])
    mixed.lanes.announce("worker-1", 60, ready=False)
    assert tiers(mixed) == []


def test_each_tier_keeps_its_profile(mixed: Lanes) -> None:
    assert mixed.lanes.profiles() == [packed(50.0), packed(250.0)]
    mixed.lanes.announce("worker-1", 60, speed=FAST, profile=packed(51.0))
    assert mixed.lanes.profiles() == [packed(51.0), packed(250.0)]
    mixed.lanes.announce("slow", 0)
    assert mixed.lanes.profiles() == [packed(51.0)]


def test_a_worker_of_unknown_speed_counts_as_a_fast_one(mixed: Lanes) -> None:
    mixed.lanes.announce("earlier-release", 60)
    fast, _ = tiers(mixed)
    assert sorted(fast.workers) == ["earlier-release", "worker-1"]


def put(lanes: Lanes, name: str, due_ms: int) -> None:
    call = Call(name, "{}/64", "tenant", None, 3, "api-1")
    its = {"target_ms": due_ms, "timeout_ms": 60_000, "most": 100}
    assert lanes.lanes.put(call, terms=MIXED, **its) is None


def test_a_slow_worker_neither_sees_nor_takes_calls_that_are_due_too_soon(mixed: Lanes) -> None:
    put(mixed, "soon", 200)
    put(mixed, "later", 60_000)
    [lane] = mixed.lanes.look("slow/0", LEAST).lanes
    assert (lane.rows, lane.urgent, lane.units) == (1, 1, 3)
    assert lane.due_ms > mixed.look().now_ms + 50_000
    [taken] = mixed.take(rows=4, least_ms=300.0, slot="slow/0") or []
    assert taken.id == "later"
    [lane] = mixed.look().lanes
    assert (lane.rows, lane.urgent) == (1, 0)
    assert [call.id for call in mixed.take(rows=4) or []] == ["soon"]
    assert list(mixed.look().lanes) == []


def test_a_lane_of_urgent_calls_alone_is_not_seen_and_not_lost(mixed: Lanes) -> None:
    put(mixed, "soon", 200)
    assert list(mixed.lanes.look("slow/0", LEAST).lanes) == []
    assert [lane.rows for lane in mixed.look().lanes] == [1]


def test_calls_are_let_in_by_all_tiers_that_answer_in_time(mixed: Lanes) -> None:
    """In 450 ms the fast worker starts ten launches, and the slow one a single one that ends in
    time."""
    admitted = 0
    for n in range(60):
        call = Call(f"{n}", "{}/64", "tenant", None, 1, "api-1")
        if refused := mixed.refused(call, MIXED):
            assert refused.why == "late"
            assert refused.wait_ms > 300
            break
        admitted += 1
    assert admitted == 4 * (10 + 1)


def test_slow_workers_that_never_answer_in_time_let_nothing_in(mixed: Lanes) -> None:
    slow = replace(MIXED.others[0], allowed_ms=200)
    terms = replace(MIXED, allowed_ms=200, others=(slow,))
    admitted = 0
    while not mixed.refused(Call(f"{admitted}", "{}/64", "tenant", None, 1, "api-1"), terms):
        admitted += 1
    assert admitted == 4 * 4


def test_each_tier_has_a_wake_up_of_its_own(mixed: Lanes) -> None:
    put(mixed, "a", 60_000)
    for tier, slot in ((1, "slow/0"), (0, "worker-1/0")):
        mixed.lanes.wait_for_wakeup(slot, 60, tier)  # returns at once
