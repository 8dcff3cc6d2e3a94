"""Background tasks: faults are logged and tried again, and probes are told where that fails."""

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator

import pytest

from api import background
from jobs import clock
from jobs.telemetry import faults
from tests.support.wait import PATIENCE_S


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Event that is set by SIGTERM."""
    monkeypatch.setattr(background, "_died", False)
    monkeypatch.setattr(faults, "_FIRST_PAUSE_S", 0.0)
    event = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    yield event
    signal.signal(signal.SIGTERM, before)


@pytest.mark.anyio
async def test_work_that_fails_is_begun_again(
    terminated: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise RuntimeError("a fault")

    with caplog.at_level(logging.ERROR):
        await background.keep("some work", work)
    assert runs == 3
    assert ["'some work' failed" in each.getMessage() for each in caplog.records] == [True, True]
    assert (background.unready(), background.dead(), terminated.is_set()) == ("", False, False)


@pytest.mark.anyio
async def test_work_that_goes_on_failing_makes_the_process_unready_then_ends_it(
    terminated: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, told = 0.0, dict[float, str]()
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)

    async def work() -> None:
        nonlocal now_s
        now_s += 1.0
        told[now_s] = background.unready()
        if terminated.is_set():
            await asyncio.Event().wait()
        raise RuntimeError("a fault")

    task = background.keep("some work", work)
    while not terminated.is_set():
        assert not background.dead()
        await asyncio.sleep(0)
    assert background.dead()
    assert told[10.0] == ""
    assert told[12.0] == "the background task 'some work' has failed for 11 s"
    assert max(told) == pytest.approx(61.0, abs=1.0)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.anyio
async def test_work_that_has_lasted_since_its_fault_is_no_reason_against_the_process(
    terminated: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, goes_on = 0.0, asyncio.Event()
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)

    async def work() -> None:
        nonlocal now_s
        now_s += 1.0
        if now_s < 20:
            raise RuntimeError("a fault")
        goes_on.set()
        await asyncio.Event().wait()

    task = background.keep("some work", work)
    await goes_on.wait()
    assert "some work" in background.unready()
    now_s += 5.0
    assert background.unready() == ""
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_death_of_a_thread_ends_the_process(
    terminated: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", background.thread_died)
    thread = threading.Thread(target=lambda: 1 / 0, name="a thread")
    thread.start()
    thread.join()
    assert terminated.wait(PATIENCE_S)
    assert background.dead()
    assert background.unready()
