"""Deltas of one call: in order, bounded, within their deadlines."""

import asyncio

import pytest

from api.gateway.streaming import inbox as module
from api.gateway.streaming.inbox import DeltaInbox, StreamDeadlines
from jobs import clock
from jobs.calls.messages import Delta
from jobs.errors import DeadlinePassed, MillraceError, SlowReader, StreamBroken

pytestmark = pytest.mark.anyio


def made(
    ends: list[MillraceError], deadlines: StreamDeadlines | None = None, slow_reader_s: float = 60.0
) -> DeltaInbox:
    inbox = DeltaInbox(deadlines, slow_reader_s)
    inbox.start(ends.append)
    return inbox


def numbers(inbox: DeltaInbox) -> list[int]:
    return [delta.number for delta in inbox.take()]


def test_deltas_are_taken_in_order_and_once() -> None:
    ends: list[MillraceError] = []
    inbox = made(ends)
    for number in range(3):
        inbox.put(Delta("a", number))
    assert numbers(inbox) == [0, 1, 2]
    assert numbers(inbox) == []
    assert ends == []


@pytest.mark.parametrize(("number", "message"), [(2, "parts 1 to 1 were lost"), (0, "once more")])
def test_a_gap_ends_the_call_once(number: int, message: str) -> None:
    ends: list[MillraceError] = []
    inbox = made(ends)
    inbox.put(Delta("a", 0))
    inbox.put(Delta("a", number))
    inbox.put(Delta("a", 9))
    [error] = ends
    assert isinstance(error, StreamBroken)
    assert message in error.detail
    assert numbers(inbox) == [0]


def test_a_call_whose_last_deltas_are_missing_ends_with_an_error() -> None:
    inbox = made([])
    inbox.put(Delta("a", 0))
    assert inbox.check_end({"deltas": 1}) is None
    assert inbox.check_end({}) is None
    assert isinstance(inbox.check_end({"deltas": 3}), StreamBroken)


def test_the_longest_gap_is_that_of_what_came_here(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter((10.0, 10.0, 10.1, 12.6))
    monkeypatch.setattr(clock, "monotonic", lambda: next(times_s))
    inbox = made([])
    for number in range(3):
        inbox.put(Delta("a", number))
    assert inbox.add_gaps({"longest_gap_ms": 100.0, "itl_ms": 1.0}) == {
        "longest_gap_ms": 2500.0, "itl_ms": 1.0,
    }  # fmt: skip
    inbox.hold()
    monkeypatch.setattr(clock, "monotonic", lambda: 20.6)
    inbox.restore([Delta("a", number) for number in range(5)])
    assert inbox.add_gaps({})["longest_gap_ms"] == 8000.0
    assert inbox.add_gaps({"longest_gap_ms": 9000.0})["longest_gap_ms"] == 9000.0


def test_a_client_that_reads_nothing_for_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[MillraceError] = []
    inbox = made(ends, slow_reader_s=30.0)
    for now_s in (0.0, 30.0, 31.0):
        monkeypatch.setattr(clock, "monotonic", lambda now_s=now_s: now_s)
        assert ends == []
        inbox.put(Delta("a", int(bool(now_s)) + int(now_s > 30)))
    assert [type(error) for error in ends] == [SlowReader]


def test_a_client_that_reads_now_and_then_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[MillraceError] = []
    inbox = made(ends, slow_reader_s=30.0)
    for number in range(5):
        monkeypatch.setattr(clock, "monotonic", lambda number=number: 100.0 * number)
        inbox.put(Delta("a", number))
        inbox.take()
    assert ends == []


def test_no_more_deltas_wait_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 2)
    ends: list[MillraceError] = []
    inbox = made(ends)
    for number in range(3):
        inbox.put(Delta("a", number))
    assert [type(error) for error in ends] == [SlowReader]
    assert numbers(inbox) == [0, 1]


async def ended(deadlines: StreamDeadlines, *deltas: Delta) -> MillraceError:
    future: asyncio.Future[MillraceError] = asyncio.get_running_loop().create_future()
    inbox = DeltaInbox(deadlines, 60.0)
    inbox.start(future.set_result)
    for delta in deltas:
        inbox.put(delta)
    return await future


def test_a_first_token_that_does_not_come_ends_the_call() -> None:
    error = asyncio.run(ended(StreamDeadlines(20, 3_600_000)))
    assert isinstance(error, DeadlinePassed)
    assert error.detail == "no token came within 20 ms"


def test_silence_after_the_first_token_ends_the_call() -> None:
    error = asyncio.run(ended(StreamDeadlines(3_600_000, 20), Delta("a", 0)))
    assert isinstance(error, DeadlinePassed)
    assert error.detail == "no more came within 20 ms"


async def test_a_reader_waits_for_a_delta_or_for_its_time() -> None:
    inbox = made([])
    await inbox.wait(0.001)
    assert numbers(inbox) == []
    asyncio.get_running_loop().call_soon(inbox.put, Delta("a", 0))
    await inbox.wait(3600.0)
    assert numbers(inbox) == [0]
