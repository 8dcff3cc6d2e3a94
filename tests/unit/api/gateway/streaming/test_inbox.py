"""Deltas of one call: in order, bounded, within their deadlines."""

import asyncio
from math import inf
from typing import Any

import pytest

from api.gateway.streaming import inbox as module
from api.gateway.streaming.inbox import DeltaInbox, StreamDeadlines
from jobs import clock
from jobs.calls.messages import Delta
from jobs.errors import DeadlinePassed, MillraceError, SlowReader, StreamBroken
from tests.unit.api.conftest import Clock

pytestmark = pytest.mark.anyio


def made(
    ends: list[MillraceError], deadlines: StreamDeadlines | None = None, slow_reader_s: float = 60.0
) -> DeltaInbox:
    inbox = DeltaInbox(deadlines, slow_reader_s)
    inbox.start(ends.append)
    return inbox


def numbers(inbox: DeltaInbox) -> list[int]:
    return [delta.number for delta in inbox.take()]


def test_deltas_are_taken_in_order_and_once_and_a_gap_ends_the_call_once() -> None:
    ends: list[MillraceError] = []
    inbox = made(ends)
    for number in range(3):
        inbox.put(Delta("a", number))
    assert (numbers(inbox), numbers(inbox)) == ([0, 1, 2], [])
    assert ends == []
    for number, message in ((2, "parts 1 to 1 were lost"), (0, "once more")):
        ends: list[MillraceError] = []
        inbox = made(ends)
        for one in (0, number, 9):
            inbox.put(Delta("a", one))
        [error] = ends
        assert isinstance(error, StreamBroken)
        assert message in error.detail
        assert numbers(inbox) == [0]
    assert inbox.check_end({"deltas": 1}) is None
    assert inbox.check_end({}) is None
    assert isinstance(inbox.check_end({"deltas": 3}), StreamBroken), "the last ones are missing"


def test_the_longest_gap_is_that_of_what_came_here(time: Clock) -> None:
    inbox = made([])
    for number, now_s in enumerate((10.0, 10.1, 12.6)):
        time.now_s = now_s
        inbox.put(Delta("a", number))
    timing = {"longest_gap_ms": 100.0, "itl_ms": 1.0}
    assert inbox.add_gaps(timing) == timing | {"longest_gap_ms": 2500.0}
    inbox.hold()
    time.now_s = 20.6
    inbox.restore([Delta("a", number) for number in range(5)])
    assert inbox.add_gaps({})["longest_gap_ms"] == 8000.0
    assert inbox.add_gaps({"longest_gap_ms": 9000.0})["longest_gap_ms"] == 9000.0


def test_a_client_that_reads_nothing_for_long_or_too_little_is_cut(
    time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[MillraceError] = []
    inbox = made(ends, slow_reader_s=30.0)
    for number in range(5):
        time.now_s = 100.0 * number
        inbox.put(Delta("a", number))
        inbox.take()  # now and then
    for number, after_s in enumerate((0.0, 30.0, 31.0), 5):
        time.now_s = 500.0 + after_s
        assert ends == []
        inbox.put(Delta("a", number))
    assert [type(error) for error in ends] == [SlowReader]
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    ends: list[MillraceError] = []
    inbox = made(ends)
    for number in range(3):
        inbox.put(Delta("a", number))
    assert [type(error) for error in ends] == [SlowReader]
    assert numbers(inbox) == [0, 1]


async def ended(deadlines: StreamDeadlines, *deltas: Delta, **more: Any) -> MillraceError:
    future: asyncio.Future[MillraceError] = asyncio.get_running_loop().create_future()
    inbox = DeltaInbox(deadlines, 60.0)
    inbox.start(future.set_result, **more)
    for delta in deltas:
        inbox.put(delta)
    return await future


async def test_a_first_token_that_does_not_come_ends_the_call_and_silence_after_it() -> None:
    first = await ended(StreamDeadlines(20, 3_600_000))
    more = await ended(StreamDeadlines(3_600_000, 20), Delta("a", 0))
    assert type(first) is type(more) is DeadlinePassed
    assert first.detail == "no token came within 20 ms"
    assert more.detail == "no more came within 20 ms"


async def test_silence_counts_from_the_end_of_a_load() -> None:
    looks = list[float]()

    def loading_s() -> float:
        looks.append(clock.monotonic())
        return looks[-1] if len(looks) < 4 else -inf

    error = await ended(StreamDeadlines(20, 20), Delta("a", 0), loading_s=loading_s)
    assert (type(error), len(looks) >= 4) == (DeadlinePassed, True)


async def test_a_reader_waits_for_a_delta_or_for_its_time() -> None:
    inbox = made([])
    await inbox.wait(0.001)
    assert numbers(inbox) == []
    asyncio.get_running_loop().call_soon(inbox.put, Delta("a", 0))
    await inbox.wait(3600.0)
    assert numbers(inbox) == [0]
