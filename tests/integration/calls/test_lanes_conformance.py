"""What every implementation of the call lanes does: one suite, over Redis and over memory."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
import redis

from jobs import clock
from jobs.calls.lanes import (
    ALONE,
    TOO_LATE,
    WORKER_LOST,
    CallLanes,
    Look,
    Refused,
    Terms,
    Ticket,
    lane_name,
)
from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Call, Reply, pack_replies, unpack_replies
from jobs.calls.profile import Profile, Times
from jobs.calls.redis import RedisLanes, declare_dead, reply_key
from tests.wait import eventually

MODEL = "model@1"
FREE = Terms()


def ticket(look: Look, **wanted: Any) -> Ticket:
    worker = wanted.get("worker", "worker-1")
    usual = {
        "lane": "{}/64",
        "rows": 100,
        "units": 0,
        "launched_before_ms": look.last_launch_ms,
        "took_ms": 100.0,
        "needs_ms": 0.0,
        "reason": "pace",
        "worker": worker,
        "slot": f"{worker}/0",
        "lease_ms": 60_000.0,
    }
    return Ticket(**{**usual, **wanted})


@dataclass
class Lanes:
    """One implementation, and the messages that one api process was sent."""

    lanes: CallLanes
    received: Callable[[str], list[bytes]]

    def put(self, id: str, lane: str = "{}/64", **bounds: int) -> Call:
        call = Call(id, lane, "tenant", {"text": f"input {id}"}, 3, "api-1")
        assert self.refusal(call, **bounds) is None
        return call

    def refused(self, call: Call, terms: Terms = FREE, **bounds: int) -> Refused | None:
        asked = {"target_ms": 250, "timeout_ms": 60_000, "most": 100, **bounds}
        return self.lanes.put(call, **asked, terms=terms)

    def refusal(self, call: Call, **bounds: int) -> str | None:
        refused = self.refused(call, **bounds)
        return refused and refused.why

    def look(self) -> Look:
        return self.lanes.look("nobody/0")

    def try_take(self, look: Look | None = None, **wanted: Any) -> list[Call] | None:
        return self.lanes.take(ticket(look or self.look(), **wanted))

    def take(self, look: Look | None = None, **wanted: Any) -> list[Call]:
        taken = self.try_take(look, **wanted)
        assert taken is not None
        return taken

    def take_ids(self, **wanted: Any) -> list[str]:
        return [call.id for call in self.take(**wanted)]

    def answer(self, *ids: str) -> None:
        self.lanes.reply("api-1", [Reply(id, b'"done"', None, 3, {}) for id in ids])

    def answers(self) -> list[tuple[str, Any, list[str] | None]]:
        """(id, output, error) of all that one api process was sent."""
        return [
            (id, output, error)
            for message in self.received("api-1")
            for id, output, error, _, _ in unpack_replies(message)
        ]

    def waiting(self) -> dict[str, int]:
        return {lane.lane: lane.rows for lane in self.look().lanes}

    def passed(self, moment_ms: float) -> None:
        eventually(lambda: self.look().now_ms > moment_ms)


@pytest.fixture(params=["memory", "redis"])
def unserved(request: pytest.FixtureRequest) -> Lanes:
    """Lanes that no worker has announced itself for."""
    if request.param == "memory":
        memory = MemoryLanes(lambda: clock.monotonic() * 1000)
        return Lanes(memory, lambda asker: [pack_replies(r) for r in memory.replies.get(asker, [])])
    client: redis.Redis = request.getfixturevalue("redis_client")
    return Lanes(RedisLanes(client, MODEL), lambda asker: client.lrange(reply_key(asker), 0, -1))


@pytest.fixture
def lanes(unserved: Lanes) -> Lanes:
    unserved.lanes.announce("worker-1", 60)
    return unserved


def test_a_call_comes_out_as_it_went_in_with_its_times(lanes: Lanes) -> None:
    put = lanes.put("a", target_ms=250, timeout_ms=5000)
    [waiting] = lanes.look().lanes
    [call] = lanes.take()
    assert (call.id, call.lane, call.tenant) == (put.id, put.lane, put.tenant)
    assert (call.input, call.size, call.reply_to) == (put.input, put.size, put.reply_to)
    assert call.deadline_ms - call.enqueued_ms == pytest.approx(5000, abs=0.01)
    assert waiting.due_ms - call.enqueued_ms == pytest.approx(250, abs=0.01)


def test_a_call_is_due_no_later_than_its_deadline(lanes: Lanes) -> None:
    lanes.put("a", target_ms=5000, timeout_ms=250)
    [waiting] = lanes.look().lanes
    [call] = lanes.take()
    assert waiting.due_ms == pytest.approx(call.deadline_ms, abs=0.01)


def test_a_look_tells_each_lane_with_its_calls_and_its_most_urgent(lanes: Lanes) -> None:
    lanes.put("a", target_ms=900)
    lanes.put("b", target_ms=300)
    lanes.put("c", lane="{}/16", target_ms=600)
    look = lanes.look()
    assert {(lane.lane, lane.rows) for lane in look.lanes} == {("{}/64", 2), ("{}/16", 1)}
    due = {lane.lane: lane.due_ms - look.now_ms for lane in look.lanes}
    assert due["{}/64"] <= 300 < due["{}/16"] <= 600


def test_the_earliest_due_is_taken_first_and_no_more_than_asked(lanes: Lanes) -> None:
    for id, target_ms in (("late", 9000), ("soon", 1000), ("later", 20_000), ("now", 10)):
        lanes.put(id, target_ms=target_ms)
    assert lanes.take_ids(rows=3) == ["now", "soon", "late"]
    assert lanes.take_ids(rows=3) == ["later"]
    assert lanes.take_ids(rows=3) == []


def test_only_the_lane_that_was_named_is_taken_from(lanes: Lanes) -> None:
    lanes.put("a", lane="{}/16")
    lanes.put("b", lane='{"normalize":false}/16')
    assert lanes.take_ids(lane="{}/16") == ["a"]
    assert [lane.lane for lane in lanes.look().lanes] == ['{"normalize":false}/16']


def test_a_lane_disappears_when_it_is_empty(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.put("b", lane="{}/16")
    lanes.take()
    assert [lane.lane for lane in lanes.look().lanes] == ["{}/16"]
    lanes.take(lane="{}/16")
    assert list(lanes.look().lanes) == []


def test_without_a_ready_worker_a_call_is_refused(unserved: Lanes) -> None:
    call = Call("a", "{}/64", "tenant", 1, 1, "api-1")
    assert unserved.refusal(call) == "no_worker"
    assert unserved.take() == []


def test_one_call_too_many_is_refused_until_one_is_taken(lanes: Lanes) -> None:
    lanes.put("a", most=2)
    lanes.put("b", lane="{}/16", most=2)
    late = Call("c", "{}/64", "tenant", 1, 1, "api-1")
    assert lanes.refusal(late, most=2) == "overloaded"
    lanes.take()
    assert lanes.refusal(late, most=2) is None


def test_a_call_past_its_deadline_is_dropped_when_it_is_reached(lanes: Lanes) -> None:
    lanes.put("gone", timeout_ms=1)
    lanes.put("wanted")
    [waiting] = lanes.look().lanes
    lanes.passed(waiting.due_ms)
    assert lanes.take_ids(rows=1) == ["wanted"]
    assert list(lanes.look().lanes) == []


def test_taking_nothing_but_expired_calls_is_no_launch(lanes: Lanes) -> None:
    lanes.put("gone", timeout_ms=1)
    [waiting] = lanes.look().lanes
    lanes.passed(waiting.due_ms)
    assert lanes.take() == []
    assert lanes.look().last_launch_ms == 0


def test_a_dropped_call_is_never_taken_and_leaves_its_room(lanes: Lanes) -> None:
    dropped = lanes.put("a", most=1)
    lanes.lanes.drop(dropped)
    lanes.lanes.drop(dropped)
    assert list(lanes.look().lanes) == []
    lanes.put("b", most=1)
    assert lanes.take_ids() == ["b"]


def test_a_launch_is_remembered_with_its_predicted_time(lanes: Lanes) -> None:
    lanes.put("a")
    before = lanes.look()
    assert (before.last_launch_ms, before.last_took_ms) == (0, 0)
    lanes.take()
    after = lanes.look()
    assert before.now_ms <= after.last_launch_ms <= after.now_ms
    assert after.last_took_ms == 100


def test_a_ticket_from_before_the_pools_last_launch_takes_nothing(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.put("b")
    stale = lanes.look()
    assert len(lanes.take(rows=1, look=stale)) == 1
    assert lanes.try_take(rows=1, look=stale) is None
    assert lanes.take_ids(rows=1) == ["b"]


def test_replicas_are_the_workers_that_are_ready(lanes: Lanes) -> None:
    lanes.lanes.announce("worker-2", 60)
    lanes.lanes.announce("worker-2", 60)
    assert lanes.look().replicas == 2
    lanes.lanes.announce("worker-1", 0)
    assert lanes.look().replicas == 1


def test_a_worker_that_withdrew_gets_no_more_calls(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.lanes.announce("worker-1", 0)
    assert lanes.refusal(Call("b", "{}/64", "tenant", 1, 1, "api-1")) == "no_worker"
    assert lanes.take_ids() == ["a"]


def test_a_worker_that_falls_silent_is_no_longer_ready(unserved: Lanes) -> None:
    unserved.lanes.announce("worker-1", 0.2)
    assert unserved.look().replicas == 1
    eventually(lambda: unserved.look().replicas == 0)
    assert unserved.refusal(Call("a", "{}/64", "tenant", 1, 1, "api-1")) == "no_worker"


def test_two_takers_never_get_the_same_call(lanes: Lanes) -> None:
    ids = [f"call-{n}" for n in range(200)]
    for id in ids:
        lanes.put(id, most=1000)
    taken: list[list[str]] = [[], [], [], []]

    def take_all(mine: list[str]) -> None:
        while lanes.look().lanes:
            mine += [call.id for call in lanes.try_take(rows=3) or ()]

    threads = [threading.Thread(target=take_all, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(id for mine in taken for id in mine) == sorted(ids)


def test_the_replies_of_a_launch_reach_the_process_that_asked_in_one_message(lanes: Lanes) -> None:
    timing: dict[str, Any] = {"queue_ms": 1.5, "flush": "pace"}
    good = Reply("a", orjson.dumps({"é": [1.5]}), None, 3, timing)
    bad = Reply("b", None, ("engine_error", "it broke"), 4, timing)
    lanes.lanes.reply("api-1", [good, bad])
    lanes.lanes.reply("api-1", [good])
    lanes.lanes.reply("api-2", [bad])
    first, second = map(unpack_replies, lanes.received("api-1"))
    assert first == [
        ("a", {"é": [1.5]}, None, 3, timing),
        ("b", None, ["engine_error", "it broke"], 4, timing),
    ]
    assert [id for id, *_ in second] == ["a"]
    assert len(lanes.received("api-2")) == 1


# -- budgets and turns


def sized(lanes: Lanes, tenant: str, *sizes: int) -> None:
    """Calls of a tenant, named after it, each due later than the one before."""
    for n, size in enumerate(sizes):
        call = Call(f"{tenant}{n}", "{}/64", tenant, None, size, "api-1")
        assert lanes.refused(call, target_ms=1000 + n) is None


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


def test_turns_are_counted_in_size_where_size_is_bounded(lanes: Lanes) -> None:
    sized(lanes, "a", *[30] * 4)
    sized(lanes, "b", *[10] * 12)
    taken = lanes.take_ids(units=120)
    assert [id[0] for id in taken].count("a") == 2
    assert [id[0] for id in taken].count("b") == 6


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


# -- admission

FIXED = Terms(one_ms=100, full_rows=4, full_ms=100)


def fill(lanes: Lanes, calls: int, lane: str = "{}/64") -> None:
    for n in range(calls):
        call = Call(f"{lane}-{n}", lane, "tenant", None, 1, "api-1")
        assert lanes.refused(call, FIXED) is None


@pytest.fixture
def launched(lanes: Lanes) -> Lanes:
    """Lanes of a pool that launched a moment ago, and is idle again."""
    assert lanes.take(rows=0, took_ms=0.0) == []
    return lanes


def late(lanes: Lanes, allowed_ms: float, lane: str = "{}/64", slots: int = 1) -> float | None:
    """How long a call of this lane would wait, where that is too long; it is never let in."""
    call = Call("late", lane, "tenant", None, 1, "api-1")
    terms = replace(FIXED, allowed_ms=allowed_ms, slots=slots)
    refused = lanes.refused(call, terms)
    if refused is None:
        lanes.lanes.drop(call)
        return None
    assert refused.why == "late"
    return refused.wait_ms


def test_a_call_that_shares_the_next_launch_waits_for_nothing(launched: Lanes) -> None:
    lanes = launched
    fill(lanes, 3)
    assert late(lanes, 100) is None
    assert late(lanes, 99.9) == 0


def test_every_full_launch_before_it_is_waited_for(launched: Lanes) -> None:
    lanes = launched
    fill(lanes, 9)
    assert late(lanes, 299.9) == pytest.approx(200)
    assert late(lanes, 300) is None


def test_replicas_and_their_slots_share_what_waits(launched: Lanes) -> None:
    lanes = launched
    fill(lanes, 8)
    lanes.lanes.announce("worker-2", 60)
    assert late(lanes, 0) == pytest.approx(100)  # the third launch, on two slots
    assert late(lanes, 0, slots=2) == 0


def test_other_lanes_are_waited_for_by_what_they_cost(launched: Lanes) -> None:
    lanes = launched
    fill(lanes, 6)
    assert late(lanes, 0, lane="{}/16") == pytest.approx(200)
    for rows, left_ms in ((2, 100), (3, 0), (1, 0)):
        lanes.take(rows=rows)
        lanes.lanes.look("worker-1/0")  # the launch has ended
        assert late(lanes, 0, lane="{}/16") == pytest.approx(left_ms)


def test_a_pool_that_is_busy_is_waited_for(launched: Lanes) -> None:
    lanes = launched
    fill(lanes, 1)
    lanes.take(took_ms=5000.0)
    waits_ms = late(lanes, 0)
    assert waits_ms is not None
    assert 4000 < waits_ms <= 5000
    lanes.lanes.announce("worker-2", 60)
    assert late(lanes, 0) == 0  # the other one is idle


def test_the_slots_are_waited_for_in_turn(launched: Lanes) -> None:
    lanes = launched
    for worker, took_ms in (("worker-1", 5000.0), ("worker-2", 9000.0)):
        lanes.lanes.announce(worker, 60)
        lanes.take(rows=0, took_ms=took_ms, worker=worker)
    assert late(lanes, 0) == pytest.approx(5000, abs=1000)
    fill(lanes, 4)
    assert late(lanes, 0) == pytest.approx(9000, abs=1000)
    fill(lanes, 4, lane="{}/16")
    assert late(lanes, 0) == pytest.approx(5100, abs=1000)


def test_a_slot_that_looks_is_not_busy_any_more(launched: Lanes) -> None:
    lanes = launched
    assert lanes.take(rows=0, took_ms=5000.0) == []  # items alone
    assert list(lanes.look().busy) == ["worker-1/0"]
    assert lanes.lanes.look("worker-1/0").busy == {}
    assert late(lanes, 0) == 0


def test_a_worker_that_leaves_is_not_busy_any_more(launched: Lanes) -> None:
    lanes = launched
    lanes.lanes.announce("worker-2", 60)
    lanes.take(rows=0, took_ms=5000.0, worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    assert lanes.look().busy == {}


def test_what_a_worker_that_drains_launches_keeps_nobody_waiting(launched: Lanes) -> None:
    lanes = launched
    lanes.lanes.announce("worker-2", 60)
    lanes.take(rows=0, took_ms=5000.0, worker="worker-2")
    lanes.lanes.announce("worker-2", 60, ready=False)
    assert late(lanes, 0) == 0
    lanes.take(rows=0, took_ms=5000.0, worker="worker-2")
    assert late(lanes, 0) == 0


def test_a_worker_that_leaves_watches_no_more(lanes: Lanes) -> None:
    until_ms = lanes.look().now_ms + 60_000
    lanes.lanes.watch("worker-1/1", until_ms, 9)
    lanes.lanes.announce("worker", 0)
    assert lanes.look().watched_ms == pytest.approx(until_ms, abs=0.01)
    lanes.lanes.announce("worker-1", 0)
    assert lanes.look().watched_ms == 0


def test_a_longer_launch_counts_for_the_call_that_joins_it(launched: Lanes) -> None:
    lanes = launched
    fill(lanes, 3)
    joined = replace(FIXED, step_ms=10, allowed_ms=129.9)
    call = Call("late", "{}/64", "tenant", None, 1, "api-1")
    assert lanes.refused(call, joined) == Refused("late", 0)
    assert lanes.refused(call, replace(joined, allowed_ms=130)) is None


def test_a_pool_that_launched_nothing_for_long_is_probed(lanes: Lanes) -> None:
    """What it takes may be known wrongly; a launch would tell."""
    probe = Call("probe", "{}/64", "tenant", None, 1, "api-1")
    hopeless = replace(FIXED, allowed_ms=1)
    assert lanes.refused(probe, hopeless) is None
    assert lanes.refused(replace(probe, id="another"), hopeless) == Refused("late", 0)
    lanes.take(took_ms=0.0)
    assert lanes.refused(replace(probe, id="third"), hopeless) == Refused("late", 0)


def test_what_is_dropped_costs_nothing(launched: Lanes) -> None:
    lanes = launched
    fill(lanes, 2)
    for n in range(2):
        lanes.lanes.drop(Call(f"{{}}/64-{n}", "{}/64", "tenant", None, 1, "api-1"))
    assert late(lanes, 0, lane="{}/16") == pytest.approx(0)


# -- what the pool knows


def test_calls_are_known_by_when_they_came_and_how_far_apart(lanes: Lanes) -> None:
    assert (lanes.look().called_ms, lanes.look().gap_ms) == (0, 0)
    lanes.put("a")
    first = lanes.look()
    assert first.gap_ms == 0
    lanes.passed(first.called_ms + 20)
    lanes.put("b")
    second = lanes.look()
    assert second.gap_ms == pytest.approx(second.called_ms - first.called_ms, abs=0.01)


def test_a_profile_is_what_the_latest_worker_announced(lanes: Lanes) -> None:
    assert lanes.lanes.profile() == b""
    profile = Profile(1500.0, {64: Times(32, 100.0, 11.0)})
    lanes.lanes.announce("worker-1", 60, profile=profile.pack())
    lanes.lanes.announce("worker-1", 60)
    assert Profile.unpack(lanes.lanes.profile()) == profile


def test_a_model_is_wanted_once_a_call_found_no_worker(unserved: Lanes) -> None:
    assert not unserved.lanes.wanted()
    unserved.refusal(Call("a", "{}/64", "tenant", 1, 1, "api-1"))
    assert unserved.lanes.wanted()


def test_launches_are_counted_by_their_reason(lanes: Lanes) -> None:
    for reason in ("full", "pace", "full"):
        lanes.put("a")
        lanes.take(reason=reason)
    lanes.take(reason="knee")  # of nothing
    assert lanes.lanes.flushes() == {"full": 2, "pace": 1}


# -- deaths

LONE = ALONE + "{}/64"


def test_a_call_of_a_dead_worker_waits_alone_and_at_once_for_another(lanes: Lanes) -> None:
    lanes.put("a")
    [before] = lanes.take(worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    assert lanes.lanes.recover() == 1
    look = lanes.look()
    [waiting] = look.lanes
    assert (waiting.lane, waiting.rows) == (LONE, 1)
    assert waiting.due_ms <= look.now_ms
    [after] = lanes.take(lane=LONE)
    assert after == replace(before, lane=LONE)
    assert lanes.answers() == []


def test_its_second_death_ends_a_call_as_worker_lost(lanes: Lanes) -> None:
    lanes.put("a")
    for lane in ("{}/64", LONE):
        assert lanes.take_ids(lane=lane, worker="worker-2") == ["a"]
        lanes.lanes.announce("worker-2", 0)
        assert lanes.lanes.recover() == 1
    assert lanes.answers() == [("a", None, list(WORKER_LOST))]
    assert lanes.waiting() == {}
    assert lanes.lanes.recover() == 0


def test_the_calls_of_a_launch_that_died_are_put_back_each(lanes: Lanes) -> None:
    for id in ("a", "b", "c"):
        lanes.put(id)
    lanes.put("waits", lane="{}/16")
    assert len(lanes.take(worker="worker-2")) == 3
    lanes.lanes.announce("worker-2", 0)
    assert lanes.lanes.recover() == 3
    assert lanes.waiting() == {LONE: 3, "{}/16": 1}


def test_the_sizes_of_calls_that_were_put_back_are_known(lanes: Lanes) -> None:
    sized(lanes, "a", 30, 12)
    lanes.take(worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    lanes.lanes.recover()
    assert [lane.units for lane in lanes.look().lanes] == [42]
    lanes.take(lane=LONE, rows=1)
    assert [lane.units for lane in lanes.look().lanes] in ([30], [12])


def test_what_a_living_worker_has_in_hand_is_left_to_it_even_while_it_drains(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take()
    assert lanes.lanes.recover() == 0
    lanes.lanes.announce("worker-1", 60, ready=False)
    assert lanes.look().replicas == 0
    assert lanes.lanes.recover() == 0
    lanes.lanes.announce("worker-1", 0)
    assert lanes.lanes.recover() == 1


def test_a_worker_that_falls_silent_loses_what_it_has_in_hand(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take(rows=1, worker="worker-2", lease_ms=200.0)
    assert lanes.lanes.recover() == 0
    eventually(lambda: lanes.lanes.recover() == 1)


def test_what_its_taker_never_heard_of_is_put_back_where_it_was(lanes: Lanes) -> None:
    for id in ("kept", "lost", "other"):
        lanes.put(id)
    for hand, worker in ((1, "worker-1"), (2, "worker-1"), (2, "worker-2")):
        assert len(lanes.take(rows=1, worker=worker, hand=hand)) == 1
    lanes.lanes.disown("worker-1", 2)
    lanes.lanes.disown("worker-1", 2)
    assert [(lane.lane, lane.rows, lane.units) for lane in lanes.look().lanes] == [("{}/64", 1, 3)]
    assert lanes.take_ids() == ["lost"]


def test_who_takes_lives_though_the_lanes_forgot_it(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take(worker="unknown")
    assert lanes.lanes.recover() == 0


def test_two_keepers_put_a_call_back_once(lanes: Lanes) -> None:
    for n in range(50):
        lanes.put(f"call-{n}")
    lanes.take(worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(lanes.lanes.recover())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == [0, 0, 0, 50]
    assert lanes.waiting() == {LONE: 50}


def test_a_call_that_was_answered_is_not_recovered(lanes: Lanes) -> None:
    lanes.put("answered")
    lanes.put("not-yet")
    lanes.take(worker="worker-2")
    lanes.answer("answered")
    lanes.lanes.announce("worker-2", 0)
    assert lanes.lanes.recover() == 1
    assert lanes.take_ids(lane=LONE) == ["not-yet"]


def test_a_call_whose_client_left_dies_with_its_worker(lanes: Lanes) -> None:
    call = lanes.put("a")
    lanes.take(worker="worker-2")
    lanes.lanes.drop(call)
    lanes.lanes.announce("worker-2", 0)
    assert lanes.lanes.recover() == 0
    assert lanes.waiting() == {}


def test_a_client_that_leaves_takes_back_a_call_that_waits_alone(lanes: Lanes) -> None:
    call = lanes.put("a")
    lanes.take(worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    lanes.lanes.recover()
    lanes.lanes.drop(call)
    assert lanes.waiting() == {}


def test_a_call_past_its_deadline_is_forgotten_with_its_worker(lanes: Lanes) -> None:
    lanes.put("a", timeout_ms=50)
    [call] = lanes.take(worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    lanes.passed(call.deadline_ms)
    assert lanes.lanes.recover() == 0
    assert (lanes.waiting(), lanes.answers()) == ({}, [])


def test_a_worker_that_was_only_slow_answers_before_the_second_delivery(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take(worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    lanes.lanes.recover()
    lanes.answer("a")
    assert lanes.take_ids(lane=LONE) == []
    assert lanes.answers() == [("a", "done", None)]
    assert lanes.lanes.recover() == 0


def test_a_call_in_hand_takes_no_room_and_takes_some_when_it_is_put_back(lanes: Lanes) -> None:
    lanes.put("a", most=1)
    lanes.take(worker="worker-2")
    lanes.put("b", most=1)
    lanes.lanes.announce("worker-2", 0)
    lanes.lanes.recover()
    assert lanes.refusal(Call("c", "{}/64", "tenant", 1, 1, "api-1"), most=2) == "overloaded"


# -- Redis alone


@pytest.fixture
def in_redis(redis_client: "redis.Redis") -> RedisLanes:
    lanes = RedisLanes(redis_client, MODEL)
    lanes.announce("worker-1", 60)
    return lanes


def take(lanes: RedisLanes, rows: int = 1, lane: str = "{}/64") -> list[Call]:
    return lanes.take(ticket(lanes.look("nobody/0"), rows=rows, lane=lane)) or []


def put(lanes: RedisLanes, id: str) -> None:
    call = Call(id, "{}/64", "tenant", 1, 1, "api-1")
    assert lanes.put(call, target_ms=250, timeout_ms=60_000, most=100, terms=Terms()) is None


def test_however_many_calls_wait_the_bell_rings_once(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    put(in_redis, "a")
    put(in_redis, "b")
    assert redis_client.llen(in_redis.keys.bell) == 1


def test_a_taker_that_leaves_calls_behind_rings_for_the_next(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    put(in_redis, "a")
    put(in_redis, "b")
    for left in (1, 0):
        redis_client.delete(in_redis.keys.bell)
        take(in_redis, rows=1)
        assert redis_client.llen(in_redis.keys.bell) == left


def test_who_launches_items_rings_for_the_calls_that_wait(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    put(in_redis, "a")
    in_redis.watch("worker-1/0", in_redis.look("nobody/0").now_ms + 60_000, 2)
    redis_client.delete(in_redis.keys.bell)
    take(in_redis, rows=0, lane="")
    assert redis_client.llen(in_redis.keys.bell) == 1


def test_who_leaves_rings_for_the_calls_that_wait(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    in_redis.announce("worker-2", 60)
    for left in (0, 1):
        in_redis.announce("worker-1", 0)
        assert redis_client.llen(in_redis.keys.bell) == left
        put(in_redis, "a")
        redis_client.delete(in_redis.keys.bell)  # a slot heard it, and stopped


def test_nothing_of_an_answered_call_stays_in_redis(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    put(in_redis, "a")
    [call] = take(in_redis)
    in_redis.reply("api-1", [Reply(call.id, b"1", None, 1, {})])
    kept = set(redis_client.scan_iter()) - {in_redis.keys.bell.encode()}
    ours = {in_redis.keys(what).encode() for what in ("ready", "alive", "pool", "busy")}
    assert kept == ours | {reply_key("api-1").encode()}


def test_a_reply_reaches_a_redis_that_has_lost_everything(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    put(in_redis, "a")
    take(in_redis)
    redis_client.flushall()
    redis_client.script_flush()
    in_redis.reply("api-1", [Reply("a", b"1", None, 1, {})])
    assert redis_client.llen(reply_key("api-1")) == 1
    assert in_redis.recover() == 0


def test_a_launch_of_more_calls_than_lua_takes_arguments_is_answered(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    ids = [f"call-{n}" for n in range(10_001)]
    redis_client.hset(in_redis.keys("calls"), mapping=dict.fromkeys(ids, "x"))
    in_redis.reply("api-1", [Reply(id, b"1", None, 1, {}) for id in ids])
    assert not redis_client.exists(in_redis.keys("calls"))


def test_a_call_of_any_input_and_parameters_is_put_back_as_it_was(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    lane = lane_name({"a b": "\n\0 ü %s", "c": ["alone:"]}, 64)
    call = Call("a", lane, "tenant", {"x\n y": ["\0 %d", "x" * 300_000]}, 3, "api-1")
    assert in_redis.put(call, target_ms=250, timeout_ms=60_000, most=100, terms=Terms()) is None
    [before] = take(in_redis, lane=lane)
    assert (before.lane, before.input) == (call.lane, call.input)
    declare_dead(redis_client, [MODEL], "worker-1")
    assert in_redis.recover() == 1
    [after] = take(in_redis, lane=ALONE + lane)
    assert after == replace(before, lane=ALONE + lane)


def test_calls_that_are_put_back_ring_the_bell(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    put(in_redis, "a")
    take(in_redis)
    redis_client.delete(in_redis.keys.bell)
    declare_dead(redis_client, [MODEL], "worker-1")
    in_redis.recover()
    assert redis_client.llen(in_redis.keys.bell) == 1


def test_replies_that_nobody_fetches_are_forgotten(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    in_redis.reply("api-1", [Reply("a", b"1", None, 1, {})])
    assert 0 < redis_client.ttl(reply_key("api-1")) <= 30


def test_the_lanes_of_two_models_are_apart(redis_client: "redis.Redis") -> None:
    one, other = RedisLanes(redis_client, "model@1"), RedisLanes(redis_client, "model@2")
    one.announce("worker-1", 60)
    other.announce("worker-1", 60)
    put(one, "a")
    assert list(other.look("nobody/0").lanes) == []
    assert take(other) == []
