"""Logs of calls: who may write them, what is sent, how calls of dead workers go on."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.calls.lanes import ALONE, WORKER_LOST
from jobs.calls.messages import Call, ChoiceDelta, Delta, Reply, unpack_replies
from jobs.calls.streams.log import MOST_DEATHS, CallLog, Progress
from jobs.models.inputs.generation import TokenUsage
from tests.integration.jobs.calls.made import Lanes

LANE, LONE = "{}/64", ALONE + "{}/64"
TOKENS = TokenUsage(10, 4, 3)


def put(lanes: Lanes, *ids: str, asker: str = "api-1", stream: bool = True) -> None:
    for id in ids:
        call = Call(id, LANE, "tenant", {"text": id}, 3, asker, stream=stream)
        assert lanes.refusal(call) is None


def delta(call: Call, number: int, text: str = "so", notes: bytes = b"") -> Progress:
    return Progress(call, Delta(call.id, number, (ChoiceDelta(0, text, [7]),)), notes)


def log(lanes: Lanes, id: str) -> CallLog:
    [found] = lanes.lanes.logs([id])
    return found


def numbers(lanes: Lanes, asker: str = "api-1") -> list[list[tuple[str, int]]]:
    return [[(one.id, one.number) for one in message] for message in lanes.streamed(asker)]


def stream(lanes: Lanes, *progress: Progress) -> list[str]:
    """Returns the calls that are lost."""
    return [call.id for call in lanes.lanes.stream(progress)]


def died(lanes: Lanes) -> None:
    lanes.lanes.announce("worker-2", 0)
    assert lanes.lanes.recover() == 1


def ends(lanes: Lanes) -> list[list[Any]]:
    """Replies that the api was sent, without those of its streams."""
    sent = [m for m in lanes.received("api-1") if m[:1] == b"["]
    return [list(reply) for message in sent for reply in unpack_replies(message)]


def taken(lanes: Lanes, worker: str = "worker-1", lane: str = LANE, **more: Any) -> Call:
    [call] = lanes.take(worker=worker, lane=lane, **more)
    return call


def dies_after(lanes: Lanes, number: int, lane: str = LANE) -> None:
    """A worker takes the call, sends a delta, and dies."""
    assert stream(lanes, delta(taken(lanes, "worker-2", lane), number)) == []
    died(lanes)


def test_a_step_of_deltas_is_one_message_to_each_api_that_waits(lanes: Lanes) -> None:
    put(lanes, "a", "b")
    put(lanes, "c", asker="api-2")
    put(lanes, "whole", stream=False)
    assert stream(lanes, *(delta(call, 0) for call in lanes.take())) == []
    assert numbers(lanes) == [[("a", 0), ("b", 0)]]
    assert numbers(lanes, "api-2") == [[("c", 0)]]
    assert len(log(lanes, "whole").deltas) == 1


def test_a_log_has_all_deltas_once_and_in_order_with_the_latest_notes(lanes: Lanes) -> None:
    put(lanes, "a", "b")
    a, _ = lanes.take()
    assert log(lanes, "a") == CallLog()
    for _ in range(2):
        lanes.lanes.stream([delta(a, 0, "so", b"[1]"), delta(a, 1, " much")])
    lanes.lanes.stream([delta(a, 2, "!")])
    logs = lanes.lanes.logs(["b", "a"])
    assert logs[0] == CallLog()
    assert [one.number for one in logs[1].deltas] == [0, 1, 2]
    assert "".join(one.choices[0].text for one in logs[1].deltas) == "so much!"
    assert logs[1].notes == b"[1]"
    assert numbers(lanes) == [[("a", 0), ("a", 1)], [("a", 2)]]


def test_a_worker_that_was_taken_for_dead_adds_nothing_and_learns_it(lanes: Lanes) -> None:
    put(lanes, "a")
    [before] = lanes.take(worker="worker-2")
    lanes.lanes.stream([delta(before, 0, "first")])
    died(lanes)
    assert stream(lanes, delta(before, 1, "zombie")) == ["a"]
    [after] = lanes.take()
    assert stream(lanes, delta(before, 1, "zombie"), delta(after, 1, "second")) == ["a"]
    assert [one.choices[0].text for one in log(lanes, "a").deltas] == ["first", "second"]
    assert numbers(lanes) == [[("a", 0)], [("a", 1)]]


def test_the_same_worker_adds_nothing_by_an_earlier_take(lanes: Lanes) -> None:
    put(lanes, "a")
    before = taken(lanes, token=1)
    lanes.lanes.abort("worker-1", 1)
    after = taken(lanes, token=2)
    assert stream(lanes, delta(before, 0)) == ["a"]
    assert stream(lanes, delta(after, 0)) == []


def test_a_worker_learns_of_calls_whose_clients_left_or_that_are_lost(lanes: Lanes) -> None:
    put(lanes, "a")
    [call] = lanes.take()
    lanes.lanes.drop(call)
    unknown = replace(call, id="lost")
    assert stream(lanes, delta(call, 0), delta(unknown, 0)) == ["a", "lost"]
    assert numbers(lanes) == []


# -- the end


def reply(call: Call, text: bytes = b'"done"') -> Reply:
    return Reply(call.id, text, None, 3, {}, "tenant", "standard", 5, TOKENS)


@pytest.mark.parametrize("streams", [True, False])
def test_the_end_of_a_call_is_sent_counted_once_and_forgets_it(lanes: Lanes, streams: bool) -> None:
    put(lanes, "a", stream=streams)
    call = taken(lanes)
    lanes.lanes.stream([delta(call, 0, notes=b"1")])
    for _ in range(2):
        lanes.lanes.end([(call, reply(call))])
    assert [end[:2] for end in ends(lanes)] == [["a", b'"done"']]
    assert lanes.usage() == {("tenant", "standard"): (1, 0, 3, 5)}
    assert lanes.tokens() == {"tenant": (10, 4, 3)}
    assert lanes.lanes.recover() == 0
    assert streams or log(lanes, "a") == CallLog()


@pytest.mark.parametrize("taken_again", [True, False])
def test_the_end_sent_by_a_worker_taken_for_dead_is_void(lanes: Lanes, taken_again: bool) -> None:
    put(lanes, "a")
    before = taken(lanes, "worker-2")
    lanes.lanes.stream([delta(before, 0)])
    died(lanes)
    after = taken(lanes) if taken_again else None
    lanes.lanes.end([(before, reply(before, b'"zombie"'))])
    assert (lanes.usage(), lanes.tokens(), ends(lanes)) == ({}, {}, [])
    assert len(log(lanes, "a").deltas) == 1
    after = after or taken(lanes)
    lanes.lanes.end([(after, reply(after))])
    lanes.lanes.end([(before, reply(before, b'"zombie"'))])
    assert lanes.tokens() == {"tenant": (10, 4, 3)}


def test_a_call_whose_client_left_is_billed_once_for_its_tokens(lanes: Lanes) -> None:
    put(lanes, "a")
    [call] = lanes.take()
    lanes.lanes.stream([delta(call, 0)])
    lanes.lanes.drop(call)
    failed = Reply(call.id, None, ("cancelled", ""), 3, {}, "tenant", "standard", 5, TOKENS)
    for _ in range(2):
        lanes.lanes.end([(call, failed)])
    assert lanes.tokens() == {"tenant": (10, 4, 3)}
    assert log(lanes, "a") == CallLog()


# -- deaths


def test_a_call_that_generated_goes_back_into_its_own_lane_at_every_death(lanes: Lanes) -> None:
    put(lanes, "a")
    for n in range(4):
        dies_after(lanes, n)
        assert lanes.waiting() == {LANE: 1}
    assert [one.number for one in log(lanes, "a").deltas] == [0, 1, 2, 3]


def test_a_call_that_generates_no_more_runs_alone_then_is_given_up(lanes: Lanes) -> None:
    put(lanes, "a")
    dies_after(lanes, 0)
    for lane, then in ((LANE, {LONE: 1}), (LONE, {})):
        taken(lanes, "worker-2", lane)
        died(lanes)
        assert lanes.waiting() == then
    [end] = ends(lanes)
    assert end[:3] == ["a", None, list(WORKER_LOST)]


def test_a_call_whose_workers_die_again_and_again_is_given_up_if_generating(lanes: Lanes) -> None:
    put(lanes, "a")
    for n in range(MOST_DEATHS):
        dies_after(lanes, n)
    for n, lane, then in ((0, LANE, {LONE: 1}), (1, LONE, {})):
        dies_after(lanes, MOST_DEATHS + n, lane)
        assert lanes.waiting() == then


def test_a_call_that_generated_alone_goes_back_among_the_others(lanes: Lanes) -> None:
    put(lanes, "a")
    taken(lanes, "worker-2")
    died(lanes)
    dies_after(lanes, 0, LONE)
    assert lanes.waiting() == {LANE: 1}


def test_calls_whose_engine_died_are_recovered_while_their_worker_lives(lanes: Lanes) -> None:
    put(lanes, "a")
    call = taken(lanes, "worker-2")
    lanes.lanes.stream([delta(call, 0)])
    assert lanes.lanes.recover(["worker-2#77"]) == 0
    assert lanes.lanes.recover([call.holder]) == 1
    assert lanes.waiting() == {LANE: 1}
