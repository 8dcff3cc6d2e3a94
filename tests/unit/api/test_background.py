"""Background tasks: faults are logged and tried again, and probes are told where that fails."""

import ast
import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import background
from jobs import clock
from tests.support.cases import each
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[3]
#: Files that start tasks whose results or errors somebody waits for.
AWAITED = {
    "api/auth/cache.py": "each lookup has its own callback",
    "api/background.py": "the owner",
    "api/services/single_flight.py": "whoever asked for the query",
    "api/gateway/streaming/call_stream.py": "the reader of the stream",
    "api/http/authorized_stream.py": "the response",
    "api/http/connections/connection.py": "the request, which cancels it",
    "api/services/diagnostics.py": "whoever asks for the findings",
}


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Event that is set by SIGTERM."""
    monkeypatch.setattr(background, "_died", False)
    monkeypatch.setattr(background, "_FIRST_PAUSE_S", 0.0)
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


def test_each_task_has_an_owner() -> None:
    for path, case in each(sorted((ROOT / "api").rglob("*.py")), name=lambda path: path):
        with case:
            starts = [
                node.lineno
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute)
                and node.attr in ("create_task", "ensure_future")
                and getattr(node.value, "id", "") != "group"
            ]
            owned = str(path.relative_to(ROOT)) in AWAITED
            assert bool(starts) == owned, f"lines {starts}: use api/background.py"
