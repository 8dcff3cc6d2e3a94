"""What every implementation of the call lanes does: one suite, over Redis and over memory."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from jobs.calls.messages import FRAMED, Call, Reply, unpack_replies
from jobs.calls.profile import Profile, Times
from tests.integration.jobs.calls.made import Lanes
from tests.support.wait import PATIENCE_S, eventually


@pytest.mark.parametrize(("target_ms", "timeout_ms"), [(60_000, 90_000), (90_000, 60_000)])
def test_a_call_comes_out_as_it_went_in_with_its_times_due_no_later_than_its_end(
    lanes: Lanes, target_ms: int, timeout_ms: int
) -> None:
    put = lanes.put("a", target_ms=target_ms, timeout_ms=timeout_ms)
    [waiting] = lanes.look().lanes
    [call] = lanes.take()
    assert (call.id, call.lane, call.tenant) == (put.id, put.lane, put.tenant)
    assert (call.input, call.size, call.reply_to) == (put.input, put.size, put.reply_to)
    assert call.deadline_ms - call.enqueued_ms == pytest.approx(timeout_ms, abs=0.01)
    assert waiting.due_ms - call.enqueued_ms == pytest.approx(60_000, abs=0.01)


def test_a_look_tells_each_lane_with_its_calls_and_its_most_urgent(lanes: Lanes) -> None:
    lanes.put("a", target_ms=55_000)
    lanes.put("b", target_ms=10_000)
    lanes.put("c", lane="{}/16", target_ms=50_000)
    look = lanes.look()
    assert {(lane.lane, lane.rows) for lane in look.lanes} == {("{}/64", 2), ("{}/16", 1)}
    due = {lane.lane: lane.due_ms - look.now_ms for lane in look.lanes}
    assert due["{}/64"] <= 10_000 < due["{}/16"] <= 50_000


def test_the_earliest_due_is_taken_first_and_no_more_than_asked(lanes: Lanes) -> None:
    for id, target_ms in (("late", 40_000), ("soon", 20_000), ("later", 59_000), ("now", 1)):
        lanes.put(id, target_ms=target_ms)
    assert lanes.take_ids(rows=3) == ["now", "soon", "late"]
    assert lanes.take_ids(rows=3) == ["later"]
    assert lanes.take_ids(rows=3) == []


def test_only_the_named_lane_is_taken_from_and_an_empty_one_disappears(lanes: Lanes) -> None:
    lanes.put("a", lane="{}/16")
    lanes.put("b", lane='{"normalize":false}/16')
    assert lanes.take_ids(lane="{}/16") == ["a"]
    assert [lane.lane for lane in lanes.look().lanes] == ['{"normalize":false}/16']
    assert lanes.take_ids(lane='{"normalize":false}/16') == ["b"]
    assert list(lanes.look().lanes) == []


def test_without_a_ready_worker_a_call_is_refused_and_the_model_is_wanted(unserved: Lanes) -> None:
    assert not unserved.lanes.wanted()
    call = Call("a", "{}/64", "tenant", 1, 1, "api-1")
    assert unserved.refusal(call) == "no_worker"
    assert unserved.lanes.wanted()
    assert unserved.take() == []


def test_calls_that_wait_while_no_worker_is_ready_make_their_model_wanted(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take(worker="worker-1")
    lanes.lanes.announce("worker-1", 0)
    assert not lanes.lanes.wanted()
    lanes.lanes.recover()
    assert lanes.lanes.wanted()
    lanes.lanes.announce("worker-2", 60)
    assert not lanes.lanes.wanted()
    lanes.lanes.announce("worker-2", 60, ready=False)
    assert lanes.lanes.wanted()
    lanes.take(lane=next(iter(lanes.waiting())), worker="worker-2")
    assert not lanes.lanes.wanted()


def test_one_call_too_many_is_refused_until_one_is_taken(lanes: Lanes) -> None:
    lanes.put("a", most=2)
    lanes.put("b", lane="{}/16", most=2)
    late = Call("c", "{}/64", "tenant", 1, 1, "api-1")
    assert lanes.refusal(late, most=2) == "overloaded"
    lanes.take()
    assert lanes.refusal(late, most=2) is None


def test_a_call_past_its_deadline_is_dropped_when_it_is_reached(lanes: Lanes) -> None:
    lanes.put("gone", timeout_ms=1)
    lanes.passed(lanes.look().lanes[0].due_ms)
    assert lanes.take() == []
    assert lanes.look().last_launch_ms == 0, "it was no launch"
    lanes.put("gone", timeout_ms=1)
    lanes.put("wanted")
    lanes.passed(lanes.look().lanes[0].due_ms)
    assert lanes.take_ids(rows=1) == ["wanted"]
    assert list(lanes.look().lanes) == []


def test_a_worker_learns_once_of_calls_that_were_dropped_after_it_took_them(lanes: Lanes) -> None:
    answered = lanes.put("answered")
    lanes.take()
    lanes.answer("answered")
    calls = [lanes.put(id) for id in ("a", "b", "c")]
    lanes.take(rows=2)
    for call in (answered, *calls, calls[0]):
        lanes.lanes.drop(call)
    assert lanes.lanes.wait_for_dropped("worker-2", 0.01) == []
    assert lanes.lanes.wait_for_dropped("worker-1", PATIENCE_S) == ["a", "b"]
    assert lanes.lanes.wait_for_dropped("worker-1", 0.01) == []


def test_a_worker_that_waits_for_dropped_calls_can_be_notified(lanes: Lanes) -> None:
    lanes.lanes.notify("worker-1")
    assert lanes.lanes.wait_for_dropped("worker-1", PATIENCE_S) == []
    call = lanes.put("a")
    lanes.take()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(lanes.lanes.wait_for_dropped, "worker-1", PATIENCE_S)
        lanes.lanes.drop(call)
        assert waits.result(PATIENCE_S) == ["a"]


def test_a_dropped_call_is_never_taken_and_leaves_its_room(lanes: Lanes) -> None:
    dropped = lanes.put("a", most=1)
    lanes.lanes.drop(dropped)
    lanes.lanes.drop(dropped)
    assert list(lanes.look().lanes) == []
    lanes.put("b", most=1)
    assert lanes.take_ids() == ["b"]


def test_a_launch_is_remembered_and_a_ticket_from_before_it_takes_nothing(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.put("b")
    before = lanes.look()
    assert (before.last_launch_ms, before.last_took_ms) == (0, 0)
    assert len(lanes.take(rows=1, look=before)) == 1
    after = lanes.look()
    assert before.now_ms <= after.last_launch_ms <= after.now_ms
    assert after.last_took_ms == 100
    assert lanes.try_take(rows=1, look=before) is None
    assert lanes.take_ids(rows=1) == ["b"]


def test_replicas_are_the_workers_that_are_ready(lanes: Lanes) -> None:
    lanes.put("a")
    for _ in range(2):
        lanes.lanes.announce("worker-2", 60)
    assert lanes.look().replicas == 2
    lanes.lanes.announce("worker-2", 0.05)
    eventually(lambda: lanes.look().replicas == 1)  # it fell silent
    lanes.lanes.announce("worker-1", 0)
    assert lanes.look().replicas == 0
    assert lanes.refusal(Call("b", "{}/64", "tenant", 1, 1, "api-1")) == "no_worker"
    assert lanes.take_ids() == ["a"]


def test_two_takers_never_get_the_same_call(lanes: Lanes) -> None:
    ids = [f"call-{n}" for n in range(200)]
    for id in ids:
        lanes.put(id, most=1000)

    def take_all(_: int) -> list[str]:
        mine = []
        while lanes.look().lanes:
            mine += [call.id for call in lanes.try_take(rows=3) or ()]
        return mine

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(take_all, range(4)))
    assert sorted(id for mine in taken for id in mine) == sorted(ids)


@pytest.mark.parametrize("asker", ["api-1", f"api-1{FRAMED}"])
def test_replies_of_a_launch_reach_who_asked_in_one_message(lanes: Lanes, asker: str) -> None:
    timing: dict[str, Any] = {"queue_ms": 1.5, "flush": "pace"}
    good = Reply("a", orjson.dumps({"é": [1.5]}), None, 3, timing)
    bad = Reply("b", None, ("engine_error", "it broke"), 4, timing)
    lanes.lanes.reply(asker, [good, bad])
    lanes.lanes.reply(asker, [good])
    lanes.lanes.reply("api-2", [bad])
    first, second = map(unpack_replies, lanes.received(asker))
    assert first == [
        ("a", '{"é":[1.5]}'.encode(), None, 3, timing),
        ("b", None, ["engine_error", "it broke"], 4, timing),
    ]
    assert [id for id, *_ in second] == ["a"]
    assert len(lanes.received("api-2")) == 1


def test_calls_are_taken_with_their_times_on_the_takers_clock(lanes: Lanes) -> None:
    since_ms = lanes.look().now_ms
    for id in ("a", "b"):
        lanes.put(id, timeout_ms=30_000)
    [ours] = lanes.take(rows=1, offset_ms=-1e6)
    [theirs] = lanes.take(rows=1)
    for call, offset_ms in ((ours, -1e6), (theirs, 0.0)):
        assert since_ms - 1 <= call.enqueued_ms - offset_ms <= lanes.look().now_ms + 1
        assert call.deadline_ms - call.enqueued_ms == pytest.approx(30_000, abs=0.01)


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
    assert lanes.lanes.profiles() == []
    profile = Profile(1500.0, {64: Times(32, 100.0, 11.0)})
    lanes.lanes.announce("worker-1", 60, profile=profile.pack())
    lanes.lanes.announce("worker-1", 60)
    assert [Profile.unpack(one) for one in lanes.lanes.profiles()] == [profile]


def test_launches_are_counted_by_their_reason(lanes: Lanes) -> None:
    for reason in ("full", "pace", "full"):
        lanes.put("a")
        lanes.take(reason=reason)
    lanes.take(reason="knee")  # of nothing
    assert lanes.lanes.flushes() == {"full": 2, "pace": 1}
