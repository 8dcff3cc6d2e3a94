"""Two hosts of one model that generates, of which one takes fifty times as long for a step."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from jobs.calls.tiers.tier import tier_of
from tests.integration.workers.generation.host_bench import MODEL, Bench
from tests.support import thread_clock
from tests.support.wait import eventually

FAST_MS, SLOW_MS = 4.0, 200.0
Hosted = Callable[..., Bench]


class Pair:
    """A fast host and a slow one, whose step times are known."""

    def __init__(self, hosted: Hosted, target_ms: int, slow_price: float = 1.0) -> None:
        model = replace(MODEL, target_ttft_ms=target_ms)
        self.target_ms = target_ms
        self.fast = hosted(model=model, worker="fast", step_ms=FAST_MS)
        self.slow = hosted(
            model=model, worker="slow", step_ms=SLOW_MS, price=slow_price, sequences=4
        )
        for bench in self.both:
            with pytest.MonkeyPatch.context() as patch:
                thread_clock.install(patch)
                bench.host.warm_up()
            bench.engine.added.clear()
            bench.host.announce()
        tiers = self.fast.lanes.look("nobody/0").tiers
        assert [tier_of(worker, tiers) for worker in ("fast", "slow")] == [0, 1]
        for bench in self.both:
            bench.start()

    @property
    def both(self) -> list[Bench]:
        return [self.fast, self.slow]

    def call(self, id: str, text: str = "a b") -> None:
        self.fast.call(id, text, target_ms=self.target_ms)

    def answer(self, count: int = 1, name: str = "call") -> tuple[int, int]:
        """Has so many calls answered, one after the other, by either; returns what each ran."""
        for n in range(count):
            self.call(f"{name}-{n}")
            assert self.fast.texts(f"{name}-{n}")
        return self.ran

    @property
    def ran(self) -> tuple[int, int]:
        """Sequences of the fast host, and of the slow one."""
        return len(self.fast.engine.added), len(self.slow.engine.added)


def test_calls_go_to_the_host_that_begins_them_in_time(hosted: Hosted) -> None:
    pair = Pair(hosted, target_ms=200)
    assert pair.answer(10) == (10, 0)


def test_the_slow_host_serves_once_the_fast_one_takes_no_calls(hosted: Hosted) -> None:
    pair = Pair(hosted, target_ms=200)
    assert pair.answer() == (1, 0)
    pair.fast.host.announce(ready=False)
    pair.fast.host.stop()
    assert pair.answer(name="later") == (1, 1)


def test_calls_go_to_the_cheaper_host_where_it_begins_them_in_time(hosted: Hosted) -> None:
    """Six calls in a row; on a busy machine the dear host takes what the cheaper is late for."""
    pair = Pair(hosted, target_ms=60_000, slow_price=0.001)

    def all_of_six(attempt: int) -> bool:
        before = pair.ran[0]
        return pair.answer(6, f"call-{attempt}")[0] == before

    assert any(map(all_of_six, range(4)))


def test_the_dear_host_takes_what_the_cheaper_one_has_no_room_for(hosted: Hosted) -> None:
    pair = Pair(hosted, target_ms=60_000, slow_price=0.001)
    text = " ".join("a" * 40)  # eight seconds of the slow host
    for n in range(6):
        pair.call(f"call-{n}", text)
    eventually(lambda: sum(pair.ran) == 6)
    assert pair.ran[0] >= 2  # the slow one has room for four; on a busy machine it is late for some


@pytest.mark.parametrize("slow_price", [1.0, 0.001])
def test_a_target_that_nobody_reaches_is_none(hosted: Hosted, slow_price: float) -> None:
    pair = Pair(hosted, target_ms=3, slow_price=slow_price)
    assert sum(pair.answer(2)) == 2
