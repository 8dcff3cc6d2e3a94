"""Child processes exempt what they loaded from garbage collection, and are replaced when they are
stopped."""

import gc
import os
import signal
from typing import IO, Any

import pytest

from jobs.processes import pool as pools
from jobs.processes.child import ChildKind, Handler
from jobs.processes.pool import ProcessPool
from jobs.settings import Settings

pytestmark = pytest.mark.heavy


def _start(settings: Settings) -> Handler:
    return _frozen


def _frozen(task: Any, _: IO[bytes] | None) -> int:
    if task:
        __import__(task)
    return gc.get_freeze_count()


def test_what_a_task_imported_is_exempt_before_the_next() -> None:
    pool = ProcessPool(ChildKind("test", _start, nice=0), Settings())
    try:
        found = []
        for task in ("", "", "xml.dom.minidom", ""):
            with pool.child() as child:
                child.send(task)
                found.append(child.result())
    finally:
        pool.close()
    at_first, loaded, same, more = found
    assert at_first == 0
    assert 10_000 < same <= loaded
    assert more > same


def _start_stopping(settings: Settings) -> Handler:
    return _stop_if_asked


def _stop_if_asked(task: Any, _: IO[bytes] | None) -> int:
    if task:
        os.kill(os.getpid(), signal.SIGSTOP)
    return os.getpid()


def _result(pool: ProcessPool, task: str) -> Any:
    with pool.child() as child:
        child.send(task)
        return child.result()


def test_a_process_that_is_stopped_is_killed_and_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pools, "STOPPED_FOR_S", 0.1)
    monkeypatch.setattr(pools, "_WATCH_S", 0.05)
    pool = ProcessPool(ChildKind("test", _start_stopping, nice=0), Settings())
    try:
        with pytest.raises((EOFError, OSError)):
            _result(pool, "stop")
        assert "was stopped (SIGSTOP)" in caplog.text
        assert _result(pool, "") > 0
    finally:
        pool.close()
