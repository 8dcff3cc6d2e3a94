"""Processes of ours find our packages, whatever PYTHONPATH and the working directory hold; children
exempt what they loaded from garbage collection, and are replaced when they are stopped."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from jobs.processes import packages
from jobs.processes import pool as pools
from jobs.processes.child import ChildKind, Handler
from jobs.processes.pool import ProcessPool
from jobs.settings import Settings

pytestmark = pytest.mark.heavy

NAMED = [f"{name}{path}" for path in (".py", "/__init__.py") for name in packages.NAMES]


@pytest.fixture(params=NAMED)
def hiding(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Folder with a module that has a name of ours, and one that hasn't."""
    (tmp_path / request.param).parent.mkdir(exist_ok=True)
    (tmp_path / request.param).write_text("raise SystemExit('this is not ours')")
    ours = "import api, jobs, migrations, millrace, ops, workers"
    (tmp_path / "users.py").write_text(f"{ours}\nprint(jobs.__file__)")
    return tmp_path


def run(folder: Path, pythonpath: Path) -> str:
    done = subprocess.run(
        packages.command("users"), cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(pythonpath)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_finds_them_before_the_working_directory_and_pythonpath(hiding: Path) -> None:
    ours = str(Path(packages.__file__).parents[1] / "__init__.py")
    assert run(hiding, Path()) == ours
    (hiding / "elsewhere").mkdir()
    assert run(hiding / "elsewhere", hiding) == ours


def test_an_import_path_that_hides_nothing_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "inputs.jsonl").touch()
    packages.find_first()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = list(sys.path)
    packages.find_first()
    assert sys.path == before
    (tmp_path / "jobs" / "reader.py").touch()
    packages.find_first()
    assert sys.path == [*before[1:], str(tmp_path)]


def _result(pool: ProcessPool, task: str) -> Any:
    with pool.child() as child:
        child.send(task)
        return child.result()


def _start(settings: Settings) -> Handler:
    return _frozen


def _frozen(task: Any, _: IO[bytes] | None) -> int:
    if task:
        __import__(task)
    return gc.get_freeze_count()


def test_what_a_task_imported_is_exempt_before_the_next() -> None:
    pool = ProcessPool(ChildKind("test", _start, nice=0), Settings())
    try:
        at_first, loaded, same, more = (
            _result(pool, task) for task in ("", "", "xml.dom.minidom", "")
        )
    finally:
        pool.close()
    assert at_first == 0
    assert 10_000 < same <= loaded
    assert more > same


def _start_stopping(settings: Settings) -> Handler:
    return _stop_if_asked


def _stop_if_asked(task: Any, _: IO[bytes] | None) -> int:
    if task:
        os.kill(os.getpid(), signal.SIGSTOP)
    return os.getpid()


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
