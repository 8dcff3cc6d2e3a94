"""Deaths of a generator in a row: what kills it is found, and all else lives on."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.integration.workers.generation.host_bench import Bench, Echo
from tests.integration.workers.generation.test_host import ends
from tests.support.clients import chat
from tests.support.wait import eventually
from workers.engines.generator import GeneratorDied, Step
from workers.generation import host

Hosted = Callable[..., Bench]
WORDS = " ".join(f"w{n}" for n in range(40))
POISON = "poison " * 5


class Fragile(Echo):
    """Dies in each step with a poisonous sequence; `kills` steps and `false_starts` starts are
    ended from outside, `crashes` starts by themselves. dies_idle: without a sequence, too."""

    dies_idle = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.kills = self.false_starts = self.crashes = 0
        self.beside: list[int] = []  # sequences at each death

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        self.go.wait()
        if self.kills and (self._running or self.dies_idle):
            self.kills -= 1
            raise GeneratorDied("killed", outside=True)
        if any("poison" in one._words for one in self._running.values()):  # noqa: SLF001
            self.beside.append(len(self._running))
            raise GeneratorDied("poisoned")
        return super().step(max_prefill_tokens, prefills)

    def restart(self) -> None:
        super().restart()
        if self.false_starts:
            self.false_starts -= 1
            raise GeneratorDied("killed while it starts", outside=True)
        if self.crashes:
            self.crashes -= 1
            raise GeneratorDied("it doesn't start")


def begun(bench: Bench, count: int) -> Any:
    """Starts a host with so many calls, which have some of their tokens; it stands still."""
    bench.engine.until = 4
    for n in range(count):
        bench.call(f"c{n}", WORDS, stream=True)
    bench.start()
    bench.halted()
    for n in range(count):
        bench.taken(f"c{n}")
    return bench.engine


def test_a_call_that_kills_fails_alone(hosted: Hosted) -> None:
    bench = hosted(kind=Fragile)
    engine = begun(bench, 6)
    bench.call("bad", POISON, stream=True)
    bench.taken("bad")
    bench.call("late", WORDS)
    bench.taken("late")
    engine.go_on()
    _, error, _ = bench.reply("bad")
    assert error[0] == "transient"
    assert "also alone" in error[1]
    assert [bench.texts(f"c{n}") for n in range(6)] == [[WORDS]] * 6
    assert bench.texts("late") == [WORDS]
    assert engine.beside[-1] == 1  # it was known by then
    assert len(engine.beside) == engine.restarts == 3


def test_each_of_two_that_kill_is_found(hosted: Hosted) -> None:
    bench = hosted(kind=Fragile)
    for id in ("bad", "worse"):
        bench.call(id, POISON, n=2)
    bench.call("good", WORDS)
    bench.start()
    for id in ("bad", "worse"):
        _, error, _ = bench.reply(id)
        assert error[0] == "transient"
    assert bench.texts("good") == [WORDS]


def test_an_item_that_kills_fails_alone(hosted: Hosted) -> None:
    bench = hosted(kind=Fragile)
    bench.start()
    [in_flight] = bench.slices([WORDS, chat(POISON), WORDS])
    outputs = ends(in_flight)
    assert isinstance(outputs.pop(1), Exception)
    assert outputs == {0: WORDS, 2: WORDS}


@pytest.mark.parametrize(("kills", "false_starts", "crashes"), [(6, 0, 0), (1, 9, 0), (3, 3, 3)])
def test_deaths_from_outside_and_during_starts_fail_nobody(
    hosted: Hosted, kills: int, false_starts: int, crashes: int
) -> None:
    bench = hosted(kind=Fragile)
    engine = begun(bench, 4)
    engine.kills, engine.false_starts, engine.crashes = kills, false_starts, crashes
    engine.go_on()
    assert [bench.texts(f"c{n}") for n in range(4)] == [[WORDS]] * 4
    assert engine.restarts == kills + false_starts + crashes


def test_one_that_died_idle_is_started_again_before_anything_comes(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_IDLE_S", 0.01)
    bench = hosted(kind=Fragile)
    engine: Any = bench.engine
    engine.kills, engine.dies_idle = 1, True
    bench.start()
    eventually(lambda: engine.restarts == 1)
    bench.call("c0", WORDS)
    assert bench.texts("c0") == [WORDS]


def test_calls_end_where_the_generator_cannot_be_started_again(hosted: Hosted) -> None:
    bench = hosted(kind=Fragile)
    engine = begun(bench, 2)
    engine.kills, engine.crashes = 1, 4
    engine.go_on()
    for n in range(2):
        _, error, _ = bench.reply(f"c{n}")
        assert list(error) == ["transient", "the engine can't be started again"]
    bench.call("next", WORDS)
    assert bench.texts("next") == [WORDS]


def test_calls_beside_one_that_kills_live_on_at_whichever_worker(hosted: Hosted) -> None:
    """Each host leaves its calls to the other where it dies."""
    bench, other = hosted(kind=Fragile), hosted(kind=Fragile, worker="worker-2")
    good = [f"c{n}" for n in range(8)]
    for id in (*good[:4], "bad", *good[4:]):
        bench.call(id, POISON if id == "bad" else WORDS, stream=id != "c0")
    for one in (bench, other):
        one.start()
    bench.ended(["bad", *good])
    _, error, _ = bench.reply("bad")
    assert error[0] in ("transient", "worker_lost")
    assert [bench.texts(id) for id in good] == [[WORDS]] * 8
