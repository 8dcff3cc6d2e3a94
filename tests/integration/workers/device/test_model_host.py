"""Launches, calls and items of one model on one device, and calls where two devices differ."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import redis

from jobs.calls.keys import reply_key
from jobs.calls.lanes import Terms, Ticket, lane_name
from jobs.calls.messages import Call, Reply, unpack_replies
from jobs.calls.redis import RedisLanes
from jobs.calls.streams.rollout import StreamReader
from jobs.models.model import Model
from jobs.rollouts.records import LaunchRecord
from tests.integration.workers.device.host_bench import HOUR_S, MODEL, Bench, Shout, ends, leased
from tests.support.wait import PATIENCE_S, eventually
from workers.device.call_puller import CallPuller
from workers.device.model_host import ModelHost
from workers.engines.protocol import InvalidInput
from workers.scheduler.cost import LaunchSize


@pytest.fixture
def bench(redis_client: "redis.Redis") -> Iterator[Bench]:
    bench = Bench(redis_client)
    yield bench
    bench.stop()


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
    assert {output for output, _ in bench.replies(9).values()} == {f"T{n}" for n in range(9)}
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
    assert bench.replies(2) == {"refused": (None, error), "fine": ("C", None)}
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
    assert bench.replies(2) == {"call-1": ("B", None), "call-2": ("C", None)}
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
    assert len(bench.replies(2)) == 2
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


class Pair:
    """A fast host and a slow one, each with an engine that remembers its launches."""

    def __init__(self, client: "redis.Redis", model: Model, slow_price: float = 1.0) -> None:
        self._client, self.lanes = client, RedisLanes(client, model.key)
        self._model, self._calls = model, 0
        self.fast, self.fast_engine = self._host("fast", 0.02, 1.0)
        self.slow, self.slow_engine = self._host("slow", 0.3, slow_price)
        self.hosts = [self.fast, self.slow]
        for host in self.hosts:
            host.start()

    def _host(self, name: str, launch_s: float, price: float) -> tuple[ModelHost, Shout]:
        engine = Shout()
        puller = CallPuller(self.lanes, name, HOUR_S, price=price)
        host = ModelHost(self._model, engine, puller, lambda *_: 1)
        latency = host.scheduler.latency
        latency.seed([(LaunchSize.alike(rows, 1), launch_s) for rows in (1, 100)])
        latency.observe = lambda *_: None  # type: ignore[method-assign]  # one that stood still
        host.announce()
        return host, engine

    def call(self) -> str:
        """Sends a call; returns its output."""
        self._calls += 1
        call = Call(f"call-{self._calls}", lane_name({}, 0), "tenant", "a", 1, "api-1")
        bounds = {"target_ms": self._model.target_ms, "timeout_ms": 60_000, "most": 10}
        assert self.lanes.put(call, **bounds, terms=Terms()) is None
        packed = eventually(lambda: self._client.lpop(reply_key("api-1")))
        [(id, output, error, *_)] = unpack_replies(packed)
        assert (id, error) == (call.id, None)
        return str(output)

    def launches(self) -> tuple[int, int]:
        """Launches of the fast host, and of the slow one."""
        return len(self.fast_engine.launches), len(self.slow_engine.launches)

    def close(self) -> None:
        for host in self.hosts:
            host.stop()


@pytest.fixture
def pair(redis_client: "redis.Redis") -> Iterator[Pair]:
    with closing(Pair(redis_client, MODEL)) as pair:
        yield pair


def test_calls_go_to_the_host_that_answers_them_in_time(pair: Pair) -> None:
    for _ in range(20):
        pair.call()
    assert pair.launches() == (20, 0)


def test_the_slow_host_serves_once_the_fast_one_takes_no_calls(pair: Pair) -> None:
    pair.call()
    pair.fast.stop()
    pair.fast.announce(ready=False)
    for _ in range(3):
        pair.call()
    assert pair.launches() == (1, 3)


def test_calls_go_to_the_cheaper_host_where_it_is_in_time(redis_client: "redis.Redis") -> None:
    with closing(Pair(redis_client, replace(MODEL, target_ms=20_000), slow_price=0.01)) as pair:
        for _ in range(5):  # one that has not looked again since its reply seems busy
            eventually(lambda: all(host.idle for host in pair.hosts))
            pair.call()
        assert pair.launches() == (0, 5)
