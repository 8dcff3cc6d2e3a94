"""When a worker looks for slices itself, and what a look starts."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from sqlalchemy.exc import OperationalError

from jobs import clock
from jobs.store.queue import backlog
from workers.process.claim_timer import ClaimTimer


class Bench:
    """A timer whose database, clock and rounds are the test's; rounds run at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.looks, self.ready, self.room = 1000.0, 0, 0, 1
        self.rounds: list[bool] = []  # results of the next rounds: were there slices to claim?
        self.worked = 0
        self.error: Exception | None = None
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(backlog, "claimable", self._claimable)
        host: Any = SimpleNamespace(model=None, capacity=SimpleNamespace(room=lambda: self.room))
        database: Any = SimpleNamespace(begin=nullcontext)
        self.timer = ClaimTimer(database, {"m@1": host}, self._work, lambda act: act())

    def _claimable(self, *_: object) -> dict[str, int]:
        self.looks += 1
        if self.error:
            raise self.error
        return {"m@1": self.ready}

    def _work(self) -> bool:
        self.worked += 1
        return self.rounds.pop(0) if self.rounds else False

    def look(self) -> float:
        """Looks after the pause; returns the next pause."""
        self.now_s += self.timer.pause_s
        self.timer.look()
        return self.timer.pause_s


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


@pytest.mark.parametrize("ready", [0, 1])  # 1: a suspect that runs alone, say
def test_a_worker_that_can_claim_nothing_looks_every_three_seconds(
    bench: Bench, ready: int
) -> None:
    bench.ready = ready
    assert [bench.look() for _ in range(4)] == [2.0, 3.0, 3.0, 3.0]
    assert (bench.looks, bench.worked) == (4, 4 * ready)


def test_slices_that_nobody_nudged_for_are_claimed_and_more_are_looked_for_soon(
    bench: Bench,
) -> None:
    bench.ready, bench.rounds = 1, [True, True]
    assert bench.look() == pytest.approx(0.1)
    assert bench.worked == 3  # the last one found nothing
    bench.ready = 0
    pauses = [bench.look() for _ in range(6)]
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0, 1.0])  # as long as no nudge comes


def test_as_many_rounds_begin_as_slices_are_ready_and_none_without_room(bench: Bench) -> None:
    bench.ready, bench.room = 4, 0
    bench.look()
    assert (bench.looks, bench.worked) == (0, 0)
    bench.room = 1
    bench.look()
    assert bench.worked == 4


def test_nudges_that_come_make_looks_needless(bench: Bench) -> None:
    bench.ready, bench.rounds = 1, [True]
    bench.look()  # they were missed
    bench.ready = 0
    for _ in range(20):
        bench.timer.nudge()
        bench.timer.look()
    assert bench.looks == 1
    assert [bench.look() for _ in range(3)] == [2.0, 3.0, 3.0]


def test_a_database_that_is_away_ends_neither_the_timer_nor_a_round(bench: Bench) -> None:
    bench.error = cast(Any, OperationalError("SELECT", {}, Exception("away")))
    bench.look()
    bench.error, bench.ready, bench.rounds = None, 1, [True]
    bench.look()
    assert bench.worked == 2


def test_a_round_and_a_look_that_fail_end_neither_the_nudge_nor_the_timer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Mock(side_effect=ValueError("unforeseen"))
    monkeypatch.setattr(bench.timer, "_work", broken)
    bench.timer.nudge()

    def look() -> None:
        if broken.call_count == 3:
            bench.timer.stop()
        broken()

    monkeypatch.setattr(bench.timer, "look", look)
    bench.timer.pause_s = 0.0
    bench.timer.run()
    assert broken.call_count == 4
    assert "a round of claims failed" in caplog.text
    assert "a look for slices failed" in caplog.text
