"""Processes that a fork server starts, as the supervisor sees them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from ops.processes import children
from ops.processes.children import Supervisor, pause
from ops.processes.forking import ForkedChild, ForkServer
from tests.support.wait import PATIENCE_S, eventually, gone

ROOT = Path(__file__).parents[3]
TALKER = """
import json, os, signal, sys
import told
own_session = os.getsid(0) == os.getpid()
told = [os.environ.get("TOLD"), os.environ.get("LATER"), own_session, told.PID == os.getppid()]
print(json.dumps([sys.argv, __name__, os.getcwd(), *told]), flush=True)
exec(os.environ.get("DO", "signal.pause()"))
"""
OWNER = """
import pathlib, sys, threading
from ops.processes.children import Supervisor
from ops.processes.forking import ForkedChild, ForkServer
child = ForkedChild(ForkServer("told"), "talker", "talker", {}, pathlib.Path(sys.argv[1]))
supervisor = Supervisor([child])
supervisor.start()
print(child.pid, flush=True)
supervisor.run(threading.Event().is_set)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the modules `told`, which the server imports, and `talker`, which it runs."""
    (tmp_path / "told.py").write_text("import os\nPID = os.getpid()\n")
    (tmp_path / "talker.py").write_text(TALKER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    return tmp_path


@pytest.fixture
def server(modules: Path) -> Iterator[ForkServer]:
    server = ForkServer("told")
    yield server
    server.stop()


@pytest.fixture
def supervisor(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr(children, "KILLED_WITHIN_S", PATIENCE_S)
    supervisor = Supervisor()
    yield supervisor
    supervisor.stop(grace_s=0)


Start = Callable[..., ForkedChild]


@pytest.fixture
def start(supervisor: Supervisor, server: ForkServer, modules: Path) -> Start:
    """Starts a talker, and waits until it has said something."""

    def started(fds: tuple[int, ...] = (), **env: str) -> ForkedChild:
        child = ForkedChild(server, "talker", "talker", env, modules / "log", fds)
        supervisor.add(child)
        child.start()
        eventually((modules / "log").read_text)
        return child

    return started


def again(supervisor: Supervisor, child: ForkedChild, pid: int | None) -> None:
    """Waits until a child runs as another process."""
    eventually(lambda: (supervisor.poll(), child.alive() and child.pid != pid)[1])


def code_of(child: ForkedChild) -> int:
    """Waits for the end of a child."""
    assert child.process is not None
    return child.process.wait(PATIENCE_S)


def test_a_process_runs_as_if_python_had_started_it(
    start: Start, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATER", "1")
    monkeypatch.chdir(modules)
    start(TOLD="a")
    said = (modules / "log").read_text()
    program = str(modules / "talker.py")
    assert json.loads(said) == [[program], "__main__", str(modules), "a", "1", True, True]


@pytest.mark.parametrize(
    ("do", "code"),
    [("pass", 0), ("sys.exit(7)", 7), ("1 / 0", 1), ("os.kill(os.getpid(), 11)", -11)],
)
def test_its_exit_status_arrives(start: Start, modules: Path, do: str, code: int) -> None:
    assert code_of(start(DO=do)) == code
    assert ("ZeroDivisionError" in (modules / "log").read_text()) == (do == "1 / 0")


def test_a_killed_process_is_forked_again(
    supervisor: Supervisor, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    child = start()
    pid = child.pid
    assert child.process is not None
    child.process.kill()
    assert code_of(child) == -signal.SIGKILL
    again(supervisor, child, pid)
    assert "ended with SIGKILL" in caplog.text


def test_a_process_gets_descriptors_under_their_numbers(start: Start) -> None:
    pipes = [os.pipe() for _ in range(3)]
    fds = tuple(write for _, write in pipes)
    start(fds, DO=f"[os.write(fd, str(fd).encode()) for fd in {list(fds)}]")
    for read, write in pipes:
        os.close(write)
        assert os.read(read, 100) == str(write).encode()
        assert os.read(read, 100) == b""  # the server keeps none
        os.close(read)


def test_processes_end_and_start_with_their_server(supervisor: Supervisor, start: Start) -> None:
    child = start()
    pid = child.pid
    parent = psutil.Process(pid).ppid()
    os.kill(parent, signal.SIGKILL)
    eventually(lambda: gone(pid))
    eventually(lambda: not child.alive())
    again(supervisor, child, pid)


def test_a_killed_supervisor_takes_its_processes_with_it(modules: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(modules / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            child = int(owner.stdout.readline())
            assert not gone(child)
        finally:
            owner.kill()
    eventually(lambda: gone(child))


def test_two_threads_start_and_end_processes_at_once(server: ForkServer, modules: Path) -> None:
    server.start()

    def run(code: int) -> list[int]:
        codes, env = [], {"DO": f"sys.exit({code})"}
        for _ in range(5):
            child = ForkedChild(server, "talker", "talker", env, modules / f"log{code}")
            child.start()
            codes.append(code_of(child))
        return codes

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(run, (3, 4))) == [[3] * 5, [4] * 5]


def test_a_pause_ends_when_a_process_does(start: Start) -> None:
    child = start()
    child.terminate()
    while child.process and child.alive():
        pause([child.process], 10_000)


def test_an_import_that_fails_or_crashes_is_left_to_the_processes(modules: Path) -> None:
    (modules / "deadly.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    (modules / "faulty.py").write_text("1 / 0")
    faulty, deadly = ForkServer("faulty", "missing", "told"), ForkServer("told", "deadly")
    for server in (faulty, deadly):
        child = ForkedChild(server, "talker", "talker", {"DO": "sys.exit(7)"}, modules / "log")
        child.start()
        assert code_of(child) == 7
        server.stop()
    said = [json.loads(line) for line in (modules / "log").read_text().splitlines()]
    assert [imported_by_server for *_, imported_by_server in said] == [True, False]
