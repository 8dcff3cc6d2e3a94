"""One model on one device, with calls from a real Redis and items of slices made by hand."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import redis

from jobs import ids
from jobs.calls.lanes import Terms, Ticket, lane_name
from jobs.calls.messages import Call, Reply, unpack_replies
from jobs.calls.profile import Profile
from jobs.calls.redis import Keys, RedisLanes, reply_key
from jobs.models.model import Limits, Model
from jobs.store.queue.claim import Lease
from tests.support.wait import eventually
from workers.device.call_puller import CallPuller
from workers.device.model_host import ModelHost
from workers.engines.function import FunctionEngine
from workers.engines.protocol import InvalidInput, Metered, RateLimited, Room
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Launch
from workers.scheduler.policy import Flush

MODEL = Model("shout", "1", "function", limits=Limits(max_batch=100, window_ms=60_000))
HOUR_S = 3600.0


class Shout(FunctionEngine):
    """Upper-cases texts, and remembers its launches. "broken" breaks the launch it is in."""

    def __init__(self) -> None:
        super().__init__("builtins:list")
        self.launches: list[list[str]] = []

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        self.launches.append(list(batch))
        if "broken" in batch:
            raise RuntimeError("one of them is broken \ud800")
        return [text.upper() for text in batch]


class Bench:
    """A host, what was asked of it and what came of it."""

    def __init__(
        self, client: "redis.Redis", engine: Shout | None = None, model: Model = MODEL
    ) -> None:
        self.engine = engine or Shout()
        self.launches: list[Launch] = []
        self.lanes = RedisLanes(client, MODEL.key)
        calls = CallPuller(self.lanes, "worker-1", HOUR_S, model.limits.in_flight)
        self.host = ModelHost(model, self.engine, calls, self._note)
        self.host.announce()
        self._client, self._started = client, False

    def _note(self, model: Model, launch: Launch) -> int:
        self.launches.append(launch)
        return len(self.launches)

    def call(self, id: str, value: Any, **params: Any) -> None:
        call = Call(id, lane_name(params, 0), "tenant", value, 1, "api-1")
        bounds = {"target_ms": 10_000, "timeout_ms": 60_000, "most": 10}
        assert self.lanes.put(call, **bounds, terms=Terms()) is None

    def replies(self) -> dict[str, tuple[Any, Any]]:
        """(output, error) by call, once there are any."""
        found = eventually(lambda: self._client.lpop(reply_key("api-1")))
        return {id: (output, error) for id, output, error, *_ in unpack_replies(found)}

    def slices(
        self, *texts: Sequence[Any], params: Sequence[Mapping[str, Any]] = ()
    ) -> ClaimedBatch:
        """Slices of as many jobs, queued."""
        claimed = ClaimedBatch(
            [Lease(ids.new(), 0, len(inputs), 1, "tenant", MODEL.key, "{}") for inputs in texts]
        )
        for index, (in_flight, inputs) in enumerate(zip(claimed.slices, texts, strict=True)):
            in_flight.expect(len(inputs))
            own = params[index] if params else {}
            self.host.submit(in_flight, range(len(inputs)), inputs, own)
        return claimed

    def take_by(self, puller: CallPuller) -> None:
        """Another worker takes all the calls that wait."""
        waiting = puller.look("worker-2/0")
        flush = Flush(waiting.lanes[0], 100, 0, "pace")
        ticket = self.host.scheduler.ticket(0.0, flush, waiting, puller.worker, "worker-2/0", 1)
        assert puller.take(ticket, waiting)

    def start(self) -> None:
        self._started = True
        self.host.start()

    def stop(self) -> None:
        if self._started:
            self.host.stop()

    def expect_launches_of(self, seconds: float) -> None:
        """Every launch is taken to last so long: the knee is 90 of 100 rows, so items wait."""
        self.host.scheduler.latency.observe(LaunchSize.alike(1, 1), seconds)


@pytest.fixture
def bench(redis_client: "redis.Redis") -> Iterator[Bench]:
    bench = Bench(redis_client)
    yield bench
    bench.stop()


def ends(in_flight: InFlightSlice) -> dict[int, Any]:
    """By seq what its items ended with, once all of them did."""
    eventually(lambda: in_flight.finished)
    assert sorted(outcome.seq for outcome in in_flight.outcomes) == sorted(
        {e.seq for e in in_flight.outcomes}
    )
    return {outcome.seq: outcome.output for outcome in in_flight.outcomes}


def test_one_launch_holds_a_call_and_items_of_two_jobs(bench: Bench) -> None:
    claimed = bench.slices(["a", "b"], ["c"])
    bench.call("call-1", "d")
    bench.start()
    one, other = claimed.slices
    assert (ends(one), ends(other)) == ({0: "A", 1: "B"}, {0: "C"})
    assert bench.replies() == {"call-1": ("D", None)}
    [texts] = bench.engine.launches
    assert (texts[0], sorted(texts[1:])) == ("d", ["a", "b", "c"])
    [launch] = bench.launches
    assert (len(launch.calls), len(launch.items), launch.units) == (1, 3, 4)


def test_every_item_names_the_launch_it_was_in(bench: Bench) -> None:
    claimed = bench.slices(["ab", "c"])
    bench.start()
    [in_flight] = claimed.slices
    ends(in_flight)
    assert {(e.seq, e.size, e.launch_id) for e in in_flight.outcomes} == {(0, 2, 1), (1, 1, 1)}
    assert all(outcome.wait_ms >= 0 for outcome in in_flight.outcomes)


def test_items_and_calls_of_other_parameters_are_launched_apart(bench: Bench) -> None:
    claimed = bench.slices(["a"], ["b"], params=[{"x": 1}, {"x": 2}])
    bench.call("call-1", "c", x=1)
    bench.host.drain()
    bench.start()
    for in_flight in claimed.slices:
        ends(in_flight)
    assert bench.engine.launches == [["c", "a"], ["b"]]
    assert [launch.params for launch in bench.launches] == [{"x": 1}, {"x": 2}]


def test_an_item_that_the_model_refuses_ends_alone_and_before_any_launch(bench: Bench) -> None:
    claimed = bench.slices(["a", 7, "b"])
    [in_flight] = claimed.slices
    [refused] = in_flight.outcomes
    assert (refused.seq, refused.launch_id) == (1, None)
    assert isinstance(refused.output, InvalidInput)
    bench.start()
    assert ends(in_flight) == {0: "A", 1: refused.output, 2: "B"}
    assert bench.engine.launches == [["a", "b"]]


def test_a_call_that_the_model_refuses_is_answered_alone(bench: Bench) -> None:
    bench.call("refused", 7)
    bench.call("fine", "a")
    bench.start()
    answers = bench.replies() | bench.replies()
    assert answers["fine"] == ("A", None)
    assert answers["refused"] == (
        None,
        ["invalid_input", "shout@1 takes a string, not a number"],
    )


def test_what_breaks_a_launch_fails_alone_while_a_call_in_it_is_answered(bench: Bench) -> None:
    claimed = bench.slices(["a", "broken", "b"])
    bench.call("call-1", "c")
    bench.start()
    [in_flight] = claimed.slices
    outputs = ends(in_flight)
    assert (outputs[0], outputs[2]) == ("A", "B")
    assert isinstance(outputs[1], RuntimeError)
    assert bench.replies() == {"call-1": ("C", None)}
    assert bench.engine.launches[0] == ["c", "a", "broken", "b"]


def test_a_call_that_breaks_its_launch_is_told_so(bench: Bench) -> None:
    bench.call("call-1", "broken")
    bench.start()
    error = ["engine_error", "one of them is broken ?"]
    assert bench.replies() == {"call-1": (None, error)}


def test_what_is_released_before_its_launch_never_runs(bench: Bench) -> None:
    claimed = bench.slices(["a", "b"], ["c"])
    released, kept = claimed.slices
    bench.host.release(released)
    assert released.finished
    bench.start()
    assert ends(kept) == {0: "C"}
    assert released.outcomes == []
    assert bench.engine.launches == [["c"]]


def test_items_that_come_after_the_release_of_their_slice_are_forgotten(bench: Bench) -> None:
    [in_flight] = ClaimedBatch([Lease(ids.new(), 0, 2, 1, "tenant", MODEL.key, "{}")]).slices
    bench.host.release(in_flight)
    assert not in_flight.finished
    in_flight.expect(2)
    bench.host.submit(in_flight, range(2), ["a", "b"], {})
    assert in_flight.finished
    assert in_flight.outcomes == []


def test_items_wait_for_company_until_the_host_drains(bench: Bench) -> None:
    bench.expect_launches_of(0.1)
    claimed = bench.slices(["a", "b"])
    bench.start()
    eventually(lambda: bench.host.idle)
    assert bench.engine.launches == []
    bench.host.drain()
    [in_flight] = claimed.slices
    assert ends(in_flight) == {0: "A", 1: "B"}
    assert [launch.reason for launch in bench.launches] == ["drain"]


def test_a_host_that_drains_has_room_for_nothing(bench: Bench) -> None:
    assert bench.host.capacity.room() == MODEL.limits.slice_items
    bench.host.drain()
    assert bench.host.capacity.room() == 0


def test_room_is_for_four_slices_and_comes_back_when_they_leave(bench: Bench) -> None:
    most = MODEL.limits.slice_items
    bench.host.capacity.add_inputs(4 * most - 1)
    assert bench.host.capacity.room() == 1
    bench.host.capacity.add_inputs(1)
    assert bench.host.capacity.room() == 0
    bench.host.capacity.add_inputs(-most)
    assert bench.host.capacity.room() == most


def test_a_call_that_comes_back_from_a_dead_worker_is_launched_without_company(
    bench: Bench,
) -> None:
    claimed = bench.slices(["a"])
    bench.call("call-1", "b")
    bench.call("call-2", "c")
    dead = CallPuller(bench.lanes, "worker-2", 1)
    bench.take_by(dead)
    dead.announce(alive=False)
    assert bench.lanes.recover() == 2
    bench.host.drain()
    bench.start()
    assert bench.replies() | bench.replies() == {"call-1": ("B", None), "call-2": ("C", None)}
    assert ends(claimed.slices[0]) == {0: "A"}
    assert sorted(bench.engine.launches) == [["a"], ["b"], ["c"]]


def test_what_was_answered_is_sent_before_a_call_runs_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end the process."""
    for id, text in (("call-1", "a"), ("call-2", "b")):
        bench.call(id, text)
    dead = CallPuller(bench.lanes, "worker-2", 1)
    bench.take_by(dead)
    dead.announce(alive=False)
    assert bench.lanes.recover() == 2
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


def test_a_reply_waits_for_redis_to_come_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, tries = bench.lanes.reply, iter([True, True])

    def reply(reply_to: str, replies: list[Reply]) -> None:
        if next(tries, False):
            raise redis.ConnectionError("away")
        sent(reply_to, replies)

    monkeypatch.setattr(bench.lanes, "reply", reply)
    bench.call("call-1", "a")
    bench.start()
    assert bench.replies() == {"call-1": ("A", None)}


def test_calls_whose_take_had_no_answer_are_taken_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = bench.lanes.take

    def lose_the_answer(ticket: Ticket) -> list[Call] | None:
        monkeypatch.setattr(bench.lanes, "take", take)
        assert take(ticket)
        raise redis.TimeoutError("Timeout reading from socket")

    monkeypatch.setattr(bench.lanes, "take", lose_the_answer)
    bench.call("a", "cat")
    bench.start()
    assert bench.replies() == {"a": ("CAT", None)}


def test_a_call_that_arrives_at_an_idle_host_is_answered_when_the_bell_rings(
    bench: Bench,
) -> None:
    bench.start()
    eventually(lambda: bench.host.idle)
    bench.call("call-1", "a")
    assert bench.replies() == {"call-1": ("A", None)}


def test_a_host_that_stops_leaves_what_it_has_not_launched(bench: Bench) -> None:
    bench.expect_launches_of(0.1)
    claimed = bench.slices(["a"])
    bench.start()
    bench.stop()
    [in_flight] = claimed.slices
    bench.host.release(in_flight)
    assert (in_flight.finished, in_flight.outcomes) == (True, [])
    assert bench.engine.launches == []


def test_slices_are_handed_over_as_they_finish_and_then_no_more(bench: Bench) -> None:
    claimed = ClaimedBatch([Lease(ids.new(), n, n + 1, 1, "t", MODEL.key, "{}") for n in (0, 1)])
    first, second = claimed.slices
    first.expect(1)
    second.expect(0)
    assert claimed.wait() == [second]
    thread = threading.Thread(target=first.add, args=([ItemOutcome(0, 1, 0.0, None, "A")],))
    thread.start()
    assert claimed.wait() == [first]
    thread.join()
    assert claimed.wait() == []


def test_items_are_prepared_while_the_device_is_busy(redis_client: "redis.Redis") -> None:
    bench = Bench(redis_client)
    running, go_on = threading.Event(), threading.Event()

    def run(batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        running.set()
        assert go_on.wait(10)
        return batch

    bench.engine.run = run  # type: ignore[method-assign]
    bench.host.drain()  # nothing waits for company
    try:
        [first] = bench.slices(["a"]).slices
        bench.start()
        assert running.wait(10)
        [second] = bench.slices(["b"]).slices  # returns once it is prepared and queued
        assert not first.finished
        go_on.set()
        assert ends(second) == {0: "b"}
    finally:
        go_on.set()
        bench.stop()


class Narrow(Shout):
    """Has room for so many, who wait inside until they may go."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.may_go = Room(2), threading.Event()
        self.inside = self.most_inside = 0
        self._counting = threading.Lock()

    def room(self) -> Room:
        return self.now

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        if self.now.closed_s:
            raise RateLimited("closed", self.now.closed_s)
        with self._counting:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        self.may_go.wait(20)
        with self._counting:
            self.inside -= 1
        return [Metered(text.upper(), 100) for text in batch]


@pytest.fixture
def narrow(redis_client: "redis.Redis") -> Iterator[tuple[Bench, Narrow]]:
    engine = Narrow()
    limits = Limits(max_batch=1, in_flight=8)
    bench = Bench(redis_client, engine, Model("shout", "1", "function", limits=limits))
    yield bench, engine
    engine.may_go.set()
    bench.stop()


def test_a_gated_engine_has_no_more_launches_than_it_has_room_for(
    narrow: tuple[Bench, Narrow],
) -> None:
    bench, engine = narrow
    claimed = bench.slices([str(n) for n in range(20)])
    bench.start()
    eventually(lambda: engine.inside == 2)
    bench.host.release(claimed.slices[0])
    engine.may_go.set()
    eventually(lambda: claimed.slices[0].finished)
    assert engine.most_inside == 2
    assert len(claimed.slices[0].outcomes) == 2, "the others wait where they can be taken back"


def test_room_that_comes_is_used_and_the_time_is_shared_out_over_it(
    narrow: tuple[Bench, Narrow],
) -> None:
    bench, engine = narrow
    claimed = bench.slices([str(n) for n in range(20)])
    bench.start()
    eventually(lambda: engine.inside == 2)
    engine.now = Room(5)
    eventually(lambda: engine.inside == 5)
    engine.may_go.set()
    ends(claimed.slices[0])
    assert engine.most_inside == 5
    assert [launch.width for launch in bench.launches].count(5) >= 18
    for launch in bench.launches:
        assert launch.device_us == [round(launch.engine_s * 1e6 / launch.width)]


def test_what_an_output_is_metered_with_is_its_size(narrow: tuple[Bench, Narrow]) -> None:
    bench, engine = narrow
    engine.may_go.set()
    claimed = bench.slices(["a"])
    bench.start()
    assert ends(claimed.slices[0]) == {0: "A"}
    assert [outcome.size for outcome in claimed.slices[0].outcomes] == [100]


def test_where_the_gate_is_closed_items_wait_and_calls_are_told(
    narrow: tuple[Bench, Narrow],
) -> None:
    bench, engine = narrow
    engine.may_go.set()
    assert bench.host.capacity.room() > 0
    engine.now = Room(0, 60.0)
    assert bench.host.capacity.room() == bench.host.capacity.preemptive_room() == 0
    claimed = bench.slices(["a"])
    bench.call("call-1", "b")
    bench.start()
    assert bench.replies() == {"call-1": (None, ["rate_limited", "closed"])}
    assert claimed.slices[0].outcomes == []
    bench.host.announce()
    assert bench.lanes.look("worker-1/0").replicas == 0, "it isn't ready while it is closed"
    engine.now = Room(1)
    bench.host.announce()
    assert bench.lanes.look("worker-1/0").replicas == 1
    assert ends(claimed.slices[0]) == {0: "A"}


def test_everybody_is_told_how_much_room_there_is(
    narrow: tuple[Bench, Narrow], redis_client: "redis.Redis"
) -> None:
    bench, engine = narrow
    engine.now = Room(3)
    bench.host.announce()
    packed: Any = redis_client.hget(Keys(MODEL.key)("pool"), "profile")
    assert Profile.unpack(packed).slots == 3
    engine.now = Room(0, 7.5)
    bench.host.announce()
    packed = redis_client.hget(Keys(MODEL.key)("pool"), "profile")
    assert Profile.unpack(packed).load_ms == 7500
