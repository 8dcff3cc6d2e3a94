"""When a worker looks for slices itself, and what a look starts; times at which it claims
preemptively, and turns of suspects."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from sqlalchemy.exc import OperationalError

from jobs import clock, ids
from jobs.models.model import Model
from jobs.store.queue import backlog, claim, split
from jobs.store.queue.claim import Lease
from workers.process.claim_timer import ClaimTimer
from workers.process.claiming import Claimer


def host(**said: Any) -> Mock:
    """A host whose capacity says so."""
    capacity = Mock(**{f"{name}.return_value": value for name, value in said.items()})
    return Mock(model=Model("m", "1", "echo"), capacity=capacity)


def claimer(*hosts: Mock) -> Claimer:
    database: Any = SimpleNamespace(begin=nullcontext)
    return Claimer(database, {str(n): one for n, one in enumerate(hosts)}, 1, 60.0, "default")


@pytest.mark.parametrize(
    ("hosts", "delay_s", "claims"),  # hosts: preemptive room, time until a launch ends, its time
    [
        ([], 0.05, True),  # nothing to preempt: looks again in a moment
        ([(8, 0.01, 0.02)], 0.05, True),  # short launches
        ([(8, 0.5, 1.0)], 0.47, True),  # just before the end of a long one
        ([(8, 0.01, 1.0)], 0.015, False),  # too late for it: the next has begun then
        ([(8, 0.5, 1.0), (8, 0.2, 1.0)], 0.17, True),  # the first that ends
        ([(8, 0.5, 1.0), (0, 0.2, 1.0)], 0.47, True),  # one without room doesn't count
    ],
)
def test_the_time_is_just_before_a_launch_ends(
    hosts: list[tuple[int, float, float]], delay_s: float, claims: bool
) -> None:
    made = claimer(*(host(preemptive_room=room, next_launch_end=end) for room, *end in hosts))
    assert made.preemption_delay_s() == (pytest.approx(delay_s), claims)


def lease(*, suspect: bool) -> Lease:
    return Lease(ids.new(), 0, 1, 1, "tenant", "0", "{}", suspect=suspect)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Claimer:
    """A claimer whose models always have ordinary slices and suspects."""
    monkeypatch.setattr(backlog, "suspects_wait", lambda *_: True)
    monkeypatch.setattr(claim, "claim", lambda *_, **__: [lease(suspect=False)])
    monkeypatch.setattr(claim, "claim_suspect", lambda *_, **__: [lease(suspect=True)])
    return claimer(host(room=10, preemptive_room=10, item_ms=1.0, slice_items=10))


def test_suspects_keep_their_turn_while_what_is_in_flight_takes_long(busy: Claimer) -> None:
    in_flight = busy.claim([])
    assert not in_flight[0].suspect
    for _ in range(3):  # heartbeats within one slice
        busy.alternate_suspects(cast(Any, None))
        assert busy.claim(in_flight) == []
        assert busy.claim_preemptively(in_flight) == []
    assert busy.claim([])[0].suspect


def test_ordinary_slices_have_the_heartbeat_after_a_suspect(busy: Claimer) -> None:
    turns = []
    for _ in range(4):
        busy.alternate_suspects(cast(Any, None))
        turns.append(busy.claim([])[0].suspect)
        turns.append(busy.claim([])[0].suspect)
    assert turns == [True, False, False, False, True, False, False, False]


def test_suspects_wait_while_a_model_is_loaded(busy: Claimer) -> None:
    busy.loading = True
    busy.alternate_suspects(cast(Any, None))
    assert not busy.claim([])[0].suspect
    busy.loading = False
    busy.alternate_suspects(cast(Any, None))
    assert busy.claim([])[0].suspect


@pytest.mark.parametrize(
    ("room", "inputs", "part"),
    [
        (200, 150, None),  # it fits
        (100, 140, None),  # hardly more than a slice should have
        (100, 1000, 100),
        (60, 1000, 60),
        (1, 1000, 50),  # under backpressure there is room for one slice, not for one item
    ],
)
def test_a_slice_is_cut_into_parts_that_are_worth_a_claim(
    monkeypatch: pytest.MonkeyPatch, room: int, inputs: int, part: int | None
) -> None:
    lease = SimpleNamespace(inputs=inputs, each=1, model="0", suspect=False)
    cuts: list[int] = []
    monkeypatch.setattr(claim, "claim", lambda *_, **__: [lease])
    monkeypatch.setattr(split, "cut", lambda tx, lease, items, pool: cuts.append(items) or lease)
    assert claimer(host(room=room, slice_items=100)).claim([]) == [lease]
    assert cuts == ([] if part is None else [part])


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
