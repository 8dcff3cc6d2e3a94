"""Launches, calls and items of one model on one device."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import redis

from jobs.calls.lanes import Ticket
from jobs.calls.messages import Call, Reply
from jobs.calls.streams.rollout import StreamReader
from jobs.rollouts.records import LaunchRecord
from tests.integration.workers.device.host_bench import MODEL, Bench, Shout, ends, leased
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.protocol import InvalidInput


def test_one_launch_holds_a_call_and_items_of_two_jobs_which_name_it(bench: Bench) -> None:
    one, other = bench.slices(["a", "bb"], ["c"])
    bench.call("call-1", "d")
    bench.start()
    assert (ends(one), ends(other)) == ({0: "A", 1: "BB"}, {0: "C"})
    assert bench.replies() == {"call-1": ("D", None)}
    [texts] = bench.engine.launches
    assert (texts[0], sorted(texts[1:])) == ("d", ["a", "bb", "c"])
    [launch] = bench.launches
    assert (len(launch.calls), len(launch.items), launch.units) == (1, 3, 5)
    assert {(e.seq, e.size, e.launch_id) for e in one.outcomes} == {(0, 1, 1), (1, 2, 1)}
    assert all(outcome.wait_ms >= 0 for outcome in one.outcomes)


def test_items_and_calls_of_other_parameters_are_launched_apart(bench: Bench) -> None:
    slices = bench.slices(["a"], ["b"], params=[{"x": 1}, {"x": 2}])
    bench.call("call-1", "c", x=1)
    bench.host.drain()
    bench.start()
    for in_flight in slices:
        ends(in_flight)
    assert bench.engine.launches == [["c", "a"], ["b"]]
    assert [launch.params for launch in bench.launches] == [{"x": 1}, {"x": 2}]


def test_no_launch_mixes_cohorts_and_items_fill_each(bench: Bench) -> None:
    cohorts = "", "canary#r", "control#r"
    for n, cohort in enumerate(cohorts * 3):
        bench.call(f"call-{n}", f"t{n}", cohort=cohort)
    [items] = bench.slices(["item"])
    bench.start()
    ends(items)
    answered: dict[str, Any] = {}
    while len(answered) < 9:
        answered |= bench.replies()
    assert {output for output, _ in answered.values()} == {f"T{n}" for n in range(9)}
    launched = [sorted(set(texts) - {"item"}) for texts in bench.engine.launches]
    together = [[f"t{n}" for n in range(first, 9, 3)] for first in range(3)]
    assert sorted(filter(None, launched)) == together


def test_each_launch_of_a_rollout_is_recorded_also_calls_that_the_model_refuses(
    bench: Bench, redis_client: "redis.Redis"
) -> None:
    values = {"a": "canary#r", "broken": "canary#r", "b": "control#r", "c": "", "d": "shadow"}
    for value, cohort in values.items():
        bench.call(value, value, cohort=cohort)
    bench.call("refused", 7, cohort="control#r")
    bench.start()
    reader, found = StreamReader(redis_client, "r"), list[LaunchRecord]()
    eventually(lambda: found.extend(reader.read()) or len(found) == 3)
    lanes = sorted((one.lane, one.calls, one.failed) for one in found)
    assert lanes == [("canary", 2, 1), ("control", 1, 0), ("control", 1, 1)]
    [fine] = [one for one in found if not one.failed]
    assert fine.latency_ms > 0
    assert fine.at_s > 0
    bench.host.stop()
    assert not reader.read()


def test_what_the_model_refuses_ends_alone_and_before_any_launch(bench: Bench) -> None:
    [in_flight] = bench.slices(["a", 7, "b"])
    [refused] = in_flight.outcomes
    assert (refused.seq, refused.launch_id) == (1, None)
    assert isinstance(refused.output, InvalidInput)
    bench.call("refused", 7)
    bench.call("fine", "c")
    bench.start()
    assert ends(in_flight) == {0: "A", 1: refused.output, 2: "B"}
    error = ["invalid_input", "shout@1 takes a string, not a number"]
    assert bench.replies() | bench.replies() == {"refused": (None, error), "fine": ("C", None)}
    assert bench.engine.launches == [["c", "a", "b"]]


def test_what_breaks_a_launch_fails_alone_while_a_call_in_it_is_answered(bench: Bench) -> None:
    [in_flight] = bench.slices(["a", "broken", "b"])
    bench.call("call-1", "c")
    bench.start()
    outputs = ends(in_flight)
    assert (outputs[0], outputs[2]) == ("A", "B")
    assert isinstance(outputs[1], RuntimeError)
    assert bench.replies() == {"call-1": ("C", None)}
    assert bench.engine.launches[0] == ["c", "a", "broken", "b"]
    bench.call("call-2", "broken")
    error = ["engine_error", "one of them is broken ?"]
    assert bench.replies() == {"call-2": (None, error)}


def test_what_is_released_before_its_launch_never_runs(bench: Bench) -> None:
    released, kept = bench.slices(["a", "b"], ["c"])
    bench.host.release(released)
    assert released.finished
    bench.start()
    assert ends(kept) == {0: "C"}
    assert released.outcomes == []
    assert bench.engine.launches == [["c"]]


def test_items_that_come_after_the_release_of_their_slice_are_forgotten(bench: Bench) -> None:
    released, kept = leased(1, 1)
    bench.host.release(released)
    assert not released.finished
    for in_flight in (released, kept):
        in_flight.expect(1)
    bench.host.submit([released, kept], [0, 0], ["a", "b"], {})
    bench.start()
    assert ends(kept) == {0: "B"}
    assert (released.finished, released.outcomes) == (True, [])
    assert bench.engine.launches == [["b"]]


def test_items_wait_for_company_until_the_host_drains(bench: Bench) -> None:
    bench.expect_launches_of(0.1)
    [in_flight] = bench.slices(["a", "b"])
    bench.start()
    eventually(lambda: bench.host.idle)
    assert bench.engine.launches == []
    bench.host.drain()
    assert ends(in_flight) == {0: "A", 1: "B"}
    assert [launch.reason for launch in bench.launches] == ["drain"]


def test_room_is_for_four_slices_until_the_host_drains(bench: Bench) -> None:
    most, room = MODEL.limits.slice_items, []
    for inputs in (0, 4 * most - 1, 1, -most):
        bench.host.capacity.add_inputs(inputs)
        room.append(bench.host.capacity.room())
    assert room == [most, 1, 0, most]
    bench.host.drain()
    assert bench.host.capacity.room() == 0


def test_a_call_that_comes_back_from_a_dead_worker_is_launched_alone(bench: Bench) -> None:
    [in_flight] = bench.slices(["a"])
    bench.call("call-1", "b")
    bench.call("call-2", "c")
    bench.lose_calls()
    bench.host.drain()
    bench.start()
    assert bench.replies() | bench.replies() == {"call-1": ("B", None), "call-2": ("C", None)}
    assert ends(in_flight) == {0: "A"}
    assert sorted(bench.engine.launches) == [["a"], ["b"], ["c"]]


def test_what_was_answered_is_sent_before_a_call_runs_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id, text in (("call-1", "a"), ("call-2", "b")):
        bench.call(id, text)
    bench.lose_calls()
    sent, second, early = bench.lanes.reply, threading.Event(), []

    def run(batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        if bench.engine.launches:
            second.set()
        return Shout.run(bench.engine, batch, params)

    def reply(reply_to: str, replies: list[Reply]) -> None:
        if not early:
            early.append(second.wait(0.2))
        sent(reply_to, replies)

    monkeypatch.setattr(bench.engine, "run", run)
    monkeypatch.setattr(bench.lanes, "reply", reply)
    bench.start()
    assert len(bench.replies() | bench.replies()) == 2
    assert early == [False]


def test_calls_of_a_lost_take_are_retaken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    take = bench.lanes.take

    def lose_the_answer(ticket: Ticket) -> list[Call] | None:
        monkeypatch.setattr(bench.lanes, "take", take)
        assert take(ticket)
        raise redis.TimeoutError("Timeout reading from socket")

    monkeypatch.setattr(bench.lanes, "take", lose_the_answer)
    bench.call("a", "cat")
    bench.start()
    assert bench.replies() == {"a": ("CAT", None)}


def test_a_call_that_arrives_at_an_idle_host_is_answered_once_redis_returns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, tries = bench.lanes.reply, iter([False, True, True])

    def reply(reply_to: str, replies: list[Reply]) -> None:
        if next(tries, False):
            raise redis.ConnectionError("away")
        sent(reply_to, replies)

    monkeypatch.setattr(bench.lanes, "reply", reply)
    bench.start()
    eventually(lambda: bench.host.idle)
    for id in ("call-1", "call-2"):
        bench.call(id, "a")
        assert bench.replies() == {id: ("A", None)}


def test_a_host_that_stops_leaves_what_it_has_not_launched(bench: Bench) -> None:
    bench.expect_launches_of(0.1)
    [in_flight] = bench.slices(["a"])
    bench.start()
    bench.stop()
    bench.host.release(in_flight)
    assert (in_flight.finished, in_flight.outcomes) == (True, [])
    assert bench.engine.launches == []


def test_items_are_prepared_while_the_device_is_busy(bench: Bench) -> None:
    running, go_on = threading.Event(), threading.Event()

    def run(batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        running.set()
        assert go_on.wait(PATIENCE_S)
        return batch

    bench.engine.run = run  # type: ignore[method-assign]
    bench.host.drain()  # nothing waits for company
    [first] = bench.slices(["a"])
    bench.start()
    try:
        assert running.wait(PATIENCE_S)
        [second] = bench.slices(["b"])  # returns once it is prepared and queued
        assert not first.finished
    finally:
        go_on.set()
    assert ends(second) == {0: "b"}
