"""Processes that a fork server starts, as the supervisor sees them."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

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
def supervisor(server: ForkServer) -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.stop(grace_s=0)


def started(supervisor: Supervisor, server: ForkServer, folder: Path, **env: str) -> ForkedChild:
    """Starts a talker, and waits until it has said something."""
    log = folder / "log"
    child = ForkedChild(server, "talker", "talker", env, log)
    supervisor.add(child)
    child.start()
    eventually(lambda: log.read_text())
    return child


def test_a_process_runs_as_if_python_had_started_it(
    supervisor: Supervisor, server: ForkServer, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATER", "1")
    monkeypatch.chdir(modules)
    started(supervisor, server, modules, TOLD="a")
    said = (modules / "log").read_text()
    program = str(modules / "talker.py")
    assert json.loads(said) == [[program], "__main__", str(modules), "a", "1", True, True]


@pytest.mark.parametrize(
    ("do", "code"),
    [("pass", 0), ("sys.exit(7)", 7), ("1 / 0", 1), ("os.kill(os.getpid(), 11)", -11)],
)
def test_its_exit_status_arrives(
    supervisor: Supervisor, server: ForkServer, modules: Path, do: str, code: int
) -> None:
    child = started(supervisor, server, modules, DO=do)
    assert child.process is not None
    assert child.process.wait(PATIENCE_S) == code
    if code == 1:
        assert "ZeroDivisionError" in (modules / "log").read_text()


def test_a_killed_process_is_forked_again(
    supervisor: Supervisor, server: ForkServer, modules: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = started(supervisor, server, modules)
    assert child.process is not None
    pid = child.pid
    child.process.kill()
    assert child.process.wait(PATIENCE_S) == -signal.SIGKILL

    def again() -> bool:
        supervisor.poll()
        return child.alive() and child.pid != pid

    eventually(again)
    assert "ended with SIGKILL" in caplog.text


def test_a_process_gets_descriptors_under_their_numbers(
    supervisor: Supervisor, server: ForkServer, modules: Path
) -> None:
    pipes = [os.pipe() for _ in range(3)]
    fds = tuple(write for _, write in pipes)
    do = f"[os.write(fd, str(fd).encode()) for fd in {list(fds)}]"
    child = ForkedChild(server, "talker", "talker", {"DO": do}, modules / "log", fds)
    supervisor.add(child)
    child.start()
    for read, write in pipes:
        os.close(write)
        assert os.read(read, 100) == str(write).encode()
        assert os.read(read, 100) == b""  # the server keeps none
        os.close(read)


def test_processes_end_with_their_server_and_start_with_another(
    supervisor: Supervisor, server: ForkServer, modules: Path
) -> None:
    child = started(supervisor, server, modules)
    pid = child.pid
    assert pid is not None
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    eventually(lambda: gone(pid))
    eventually(lambda: not child.alive())

    def again() -> bool:
        supervisor.poll()
        return child.alive() and child.pid != pid

    eventually(again)


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
    codes: list[int] = []

    def run(code: int) -> None:
        for _ in range(5):
            child = ForkedChild(
                server, "talker", "talker", {"DO": f"sys.exit({code})"}, modules / f"log{code}"
            )
            child.start()
            assert child.process is not None
            codes.append(child.process.wait(PATIENCE_S))

    threads = [threading.Thread(target=run, args=(code,)) for code in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [3] * 5 + [4] * 5


def test_a_pause_ends_when_a_process_does(
    supervisor: Supervisor, server: ForkServer, modules: Path
) -> None:
    child = started(supervisor, server, modules)
    child.terminate()
    while child.process and child.alive():
        pause([child.process], 10_000)


def test_an_import_that_fails_or_crashes_is_left_to_the_processes(
    supervisor: Supervisor, modules: Path
) -> None:
    (modules / "deadly.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    (modules / "faulty.py").write_text("1 / 0")
    faulty, deadly = ForkServer("faulty", "missing", "told"), ForkServer("told", "deadly")
    for server in (faulty, deadly):
        child = ForkedChild(server, "talker", "talker", {"DO": "sys.exit(7)"}, modules / "log")
        child.start()
        assert child.process is not None
        assert child.process.wait(PATIENCE_S) == 7
        server.stop()
    said = [json.loads(line) for line in (modules / "log").read_text().splitlines()]
    assert [imported_by_server for *_, imported_by_server in said] == [True, False]
