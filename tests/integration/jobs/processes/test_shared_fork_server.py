"""Fork server that the processes of an owner share."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.processes import shared_fork_server
from jobs.processes.forked import ForkedProcess
from jobs.processes.shared_fork_server import SharedForkServer
from tests.support import fork_servers
from tests.support.processes import spawned
from tests.support.wait import PATIENCE_S, eventually, gone

ROOT = Path(__file__).parents[4]
TALKER = """
import json, os, random, signal, socket, sys
told = sys.modules.get("told")
numpy = sys.modules.get("numpy")
said = {
    "server": told and told.PID,
    "parent": os.getppid(),
    "session": os.getsid(0) == os.getpid(),
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "random": [random.random(), numpy and numpy.random.random()],
    "open": sorted(map(int, os.listdir("/proc/self/fd"))),
}
link = socket.socket(fileno=int(sys.argv[1]))
link.send(json.dumps(said).encode())
exec(sys.argv[2])
while True:
    signal.pause()
"""
CLIENT = """
import os, socket, sys
from jobs.processes.shared_fork_server import SharedForkServer
ours, theirs = socket.socketpair()
server = SharedForkServer("told", env=os.environ)
arguments = [str(theirs.fileno()), "pass"]
process = server.fork("talker", arguments, os.environ, [theirs.fileno()], 300)
ours.recv(1 << 20)
print(process.pid, flush=True)
sys.stdin.read()
"""


@dataclass
class Talker:
    """Process of the server, and what it has said about itself."""

    process: ForkedProcess
    said: dict[str, Any]


Start = Callable[..., Talker]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the modules `told`, which the server imports, and `talker`, which it runs."""
    told = "import os\nimport numpy.random\nPID = os.getpid()\nos.environ['SET_BY_IMPORT'] = '1'\n"
    (tmp_path / "told.py").write_text(told)
    (tmp_path / "talker.py").write_text(TALKER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    return tmp_path


@pytest.fixture
def owned(modules: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """The owner of the server, and its folder."""
    with fork_servers.owned() as owner_and_folder:
        yield owner_and_folder


@pytest.fixture
def start(owned: object) -> Iterator[Start]:
    """Starts a talker, and waits until it has said something."""
    started = list[Talker]()

    def start(do: str = "pass", within_s: float = PATIENCE_S, **env: str) -> Talker:
        server = SharedForkServer("told", env={**os.environ, "SERVERS": "1"})
        ours, theirs = socket.socketpair()
        with closing(ours), theirs:
            fd = theirs.fileno()
            given = {**os.environ, **env}
            process = server.fork("talker", [str(fd), do], given, [fd], within_s)
            theirs.close()
            talker = Talker(process, json.loads(ours.recv(1 << 20)))
        started.append(talker)
        return talker

    yield start
    for talker in started:
        talker.process.kill()
        talker.process.wait(PATIENCE_S)


def test_processes_are_forked_from_what_the_server_has_imported(start: Start) -> None:
    one, two, three = start(ASKED="1"), start(), start()
    assert one.said["server"] == one.said["parent"] == two.said["parent"]
    assert one.said["session"]
    assert one.said["arguments"][1] == "pass"
    assert one.process.pid != two.process.pid
    drawn = zip(one.said["random"], two.said["random"], strict=True)
    assert all(a is not None and a != b for a, b in drawn), "random numbers of their own"
    numbers = {len(its.said["open"]) for its in (one, two, three)}
    assert len(numbers) == 1, "a process has no descriptor of the server"


def test_its_environment_is_the_one_asked_for_and_what_imports_have_set(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AT_FIRST", "1")
    environment = start(ASKED="1").said["environment"]
    assert {"ASKED", "AT_FIRST", "SET_BY_IMPORT"} <= environment.keys()
    assert "SERVERS" not in environment
    monkeypatch.delenv("AT_FIRST")
    assert not {"ASKED", "AT_FIRST"} & start().said["environment"].keys()


@pytest.mark.parametrize(("do", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 11)", -11)])
def test_its_exit_status_arrives(start: Start, do: str, code: int) -> None:
    process = start(do).process
    assert process.wait(PATIENCE_S) == process.poll() == code


def test_a_killed_client_takes_its_processes_with_it(start: Start) -> None:
    bystander = start().process
    command = [sys.executable, "-c", CLIENT]
    with spawned(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert client.stdout
        pid = int(client.stdout.readline())
        assert not gone(pid)
        client.kill()
        eventually(lambda: gone(pid))
    assert bystander.poll() is None


def test_a_killed_server_leaves_its_processes_and_is_started_again(start: Start) -> None:
    survivor = start()
    os.kill(survivor.said["server"], signal.SIGKILL)
    assert start().said["server"] != survivor.said["server"]
    assert survivor.process.poll() is None
    survivor.process.kill()
    assert survivor.process.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_server_that_stands_still_is_not_waited_for(start: Start) -> None:
    server = start().said["server"]
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            start(within_s=0.1)
    finally:
        os.kill(server, signal.SIGCONT)
    assert start().said["server"] == server


def test_the_server_ends_with_its_owner(
    start: Start, owned: tuple["subprocess.Popen[str]", Path]
) -> None:
    talker, (owner, folder) = start(), owned
    assert folder.stat().st_mode & 0o777 == 0o700
    owner.kill()
    owner.wait()
    eventually(lambda: gone(talker.said["server"]))
    eventually(lambda: not folder.exists())
    with pytest.raises((ConnectionError, FileNotFoundError)):  # another server ends at once
        start()


def test_those_who_come_at_once_start_one_server(start: Start) -> None:
    with ThreadPoolExecutor(4) as threads:
        talkers = list(threads.map(lambda _: start(), range(4)))
    assert len({talker.said["server"] for talker in talkers}) == 1


def test_a_folder_others_may_enter_is_not_used(start: Start, owned: tuple[object, Path]) -> None:
    _, folder = owned
    folder.mkdir(mode=0o755)
    try:
        with pytest.raises(PermissionError):
            start()
    finally:
        folder.rmdir()


def test_an_owner_has_one_server_its_processes_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(shared_fork_server.VARIABLE, raising=False)
    shared_fork_server.environment.cache_clear()
    try:
        offered = shared_fork_server.environment()
        assert offered == shared_fork_server.environment()
        pid, _, folder = offered[shared_fork_server.VARIABLE].partition(":")
        assert int(pid) == os.getpid()
        assert not Path(folder).exists()  # until a process asks for the server
        monkeypatch.setenv(shared_fork_server.VARIABLE, "1:/")
        shared_fork_server.environment.cache_clear()
        assert shared_fork_server.environment() == {}
    finally:
        shared_fork_server.environment.cache_clear()
