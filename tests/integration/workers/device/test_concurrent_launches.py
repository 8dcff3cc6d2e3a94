"""Launches side by side: how many there may be, and which of them give way."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

from jobs.calls.keys import Keys
from jobs.calls.profile import Profile
from jobs.models.model import Limits, Model
from tests.integration.workers.device.host_bench import MODEL, Bench, Shout, ends
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.preemption import PrioritySemaphore, yield_point
from workers.engines.protocol import Metered, RateLimited, Room


class Parts(Shout):
    """Upper-cases texts one by one, and gives way between them. "slow" goes on when it may."""

    preemptible = True

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go = threading.Event(), threading.Event()
        self._device = PrioritySemaphore(1)

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        outputs = list[Any]()
        with self._device.held():
            self.launches.append(list(batch))
            for text in batch:
                if text == "slow":
                    self.began.set()
                    self._wait_for_calls()
                yield_point()
                outputs.append(text.upper())
        return outputs

    def _wait_for_calls(self) -> None:
        """Yields until calls have run."""
        for _ in range(int(PATIENCE_S / 0.005)):
            yield_point()
            if self.go.wait(0.005):
                return


@pytest.fixture
def engine() -> Parts:
    return Parts()


@pytest.fixture
def bench(redis_client: "redis.Redis", engine: Parts) -> Iterator[Bench]:
    bench = Bench(redis_client, engine, replace(MODEL, limits=replace(MODEL.limits, window_ms=0)))
    yield bench
    engine.go.set()
    bench.stop()


def test_calls_are_answered_while_items_wait_amid_a_launch(bench: Bench, engine: Parts) -> None:
    [items] = bench.slices(["slow", "b"])
    bench.start()
    assert engine.began.wait(PATIENCE_S)
    bench.call("call-1", "c")
    assert bench.replies() == {"call-1": ("C", None)}
    assert not items.finished
    engine.go.set()
    assert ends(items) == {0: "SLOW", 1: "B"}
    assert engine.launches == [["slow", "b"], ["c"]]


def test_items_come_while_calls_run_and_wait_for_them(bench: Bench, engine: Parts) -> None:
    bench.call("call-1", "slow")
    bench.start()
    assert engine.began.wait(PATIENCE_S)
    [items] = bench.slices(["a"])
    eventually(lambda: len(bench.host.launches()) == 2)
    assert engine.launches == [["slow"]]
    engine.go.set()
    assert ends(items) == {0: "A"}
    assert engine.launches == [["slow"], ["a"]]


def test_time_in_which_items_gave_way_is_not_theirs(bench: Bench, engine: Parts) -> None:
    [items] = bench.slices(["slow"])
    bench.start()
    assert engine.began.wait(PATIENCE_S)
    [launch] = bench.host.launches()
    bench.call("call-1", "c")
    bench.replies()
    engine.go.set()
    ends(items)
    eventually(lambda: not bench.host.launches())
    assert launch.background
    assert launch.engine_s > 0


def test_launches_of_calls_and_items_end_with_the_host(bench: Bench, engine: Parts) -> None:
    engine.go.set()
    [items] = bench.slices(["a", "slow"])
    bench.call("call-1", "slow")
    bench.start()
    bench.host.drain()
    assert ends(items) == {0: "A", 1: "SLOW"}
    assert bench.replies() == {"call-1": ("SLOW", None)}


@pytest.fixture
def full(redis_client: "redis.Redis", engine: Parts) -> Iterator[Bench]:
    """Runs a full launch of calls, while others wait."""
    limits = replace(MODEL.limits, max_batch=4, window_ms=0)
    bench = Bench(redis_client, engine, replace(MODEL, limits=limits))
    for text in ("slow", *"abcdefg"):
        bench.call(text, text, tenant="many")
    bench.start()
    assert engine.began.wait(PATIENCE_S)
    yield bench
    engine.go.set()
    bench.stop()


def test_calls_of_a_tenant_who_has_few_overtake_a_full_launch(full: Bench, engine: Parts) -> None:
    full.call("few", "x", tenant="few")
    assert full.replies() == {"few": ("X", None)}
    assert engine.launches == [["slow", "a", "b", "c"], ["x"]]
    engine.go.set()
    assert set(full.replies(8)) == {"slow", *"abcdefg"}


def test_calls_of_one_tenant_overtake_nothing(full: Bench, engine: Parts) -> None:
    full.call("h", "h", tenant="many")
    eventually(lambda: full.host.idle)
    assert engine.launches == [["slow", "a", "b", "c"]]
    engine.go.set()
    assert set(full.replies(9)) == {"slow", *"abcdefgh"}


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
        self.may_go.wait(PATIENCE_S)
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


def test_a_gated_engine_has_no_more_launches_than_room_for(narrow: tuple[Bench, Narrow]) -> None:
    bench, engine = narrow
    claimed = bench.slices([str(n) for n in range(20)])
    bench.start()
    eventually(lambda: engine.inside == 2)
    bench.host.release(claimed[0])
    engine.may_go.set()
    eventually(lambda: claimed[0].finished)
    assert engine.most_inside == 2
    assert len(claimed[0].outcomes) == 2, "the others wait where they can be taken back"


def test_room_that_comes_is_used_and_the_time_shared_over_it(narrow: tuple[Bench, Narrow]) -> None:
    bench, engine = narrow
    claimed = bench.slices([str(n) for n in range(20)])
    bench.start()
    eventually(lambda: engine.inside == 2)
    engine.now = Room(5)
    eventually(lambda: engine.inside == 5)
    engine.may_go.set()
    ends(claimed[0])
    assert engine.most_inside == 5
    assert [launch.width for launch in bench.launches].count(5) >= 18
    for launch in bench.launches:
        assert launch.device_us == [round(launch.engine_s * 1e6 / launch.width)]
    assert {outcome.size for outcome in claimed[0].outcomes} == {100}, "as they are metered"


def test_where_the_gate_is_closed_items_wait_calls_fail(narrow: tuple[Bench, Narrow]) -> None:
    bench, engine = narrow
    engine.may_go.set()
    assert bench.host.capacity.room() > 0
    engine.now = Room(0, 60.0)
    assert bench.host.capacity.room() == bench.host.capacity.preemptive_room() == 0
    claimed = bench.slices(["a"])
    bench.call("call-1", "b")
    bench.start()
    assert bench.replies() == {"call-1": (None, ["rate_limited", "closed"])}
    assert claimed[0].outcomes == []
    bench.host.announce()
    assert bench.lanes.look("worker-1/0").replicas == 0, "it isn't ready while it is closed"
    engine.now = Room(1)
    bench.host.announce()
    assert bench.lanes.look("worker-1/0").replicas == 1
    assert ends(claimed[0]) == {0: "A"}


def test_everybody_is_told_how_much_room_there_is(
    narrow: tuple[Bench, Narrow], redis_client: "redis.Redis"
) -> None:
    bench, engine = narrow
    for room, field, value in ((Room(3), "slots", 3), (Room(0, 7.5), "load_ms", 7500)):
        engine.now = room
        bench.host.announce()
        packed: Any = redis_client.hget(Keys(MODEL.key)("pool"), "profile")
        assert getattr(Profile.unpack(packed), field) == value
