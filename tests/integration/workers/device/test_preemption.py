"""Launches of items that give way to launches of calls."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

from tests.integration.workers.device.host_bench import MODEL, Bench, Shout, ends
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.preemption import PrioritySemaphore, yield_point


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
        deadline = threading.Event()
        for _ in range(int(PATIENCE_S / 0.005)):
            if self.go.is_set():
                return
            yield_point()
            deadline.wait(0.005)


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
    assert set(full.replies() | full.replies()) == {"slow", *"abcdefg"}


def test_calls_of_one_tenant_overtake_nothing(full: Bench, engine: Parts) -> None:
    full.call("h", "h", tenant="many")
    eventually(lambda: full.host.idle)
    assert engine.launches == [["slow", "a", "b", "c"]]
    engine.go.set()
    assert set(full.replies() | full.replies() | full.replies()) == {"slow", *"abcdefgh"}
