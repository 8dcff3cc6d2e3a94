import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ops.processes import children, log_rotation
from ops.processes.children import Child, Supervisor, describe_exit, pause, setpriv
from tests.support.wait import PATIENCE_S, eventually, gone

ROOT = Path(__file__).parents[3]
IDLE = [sys.executable, "-c", "import signal; print('idle', flush=True); signal.pause()"]
STUBBORN = ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"]
PARENT = ["sh", "-c", "sleep 600 & echo $!; wait"]
OWNER = """
import sys, threading
from ops.processes.children import Child, Supervisor
child = Child("idle", ["sleep", "600"])
supervisor = Supervisor([child])
supervisor.start()
print(child.pid, flush=True)
supervisor.run(threading.Event().is_set)
"""


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr(children, "KILLED_WITHIN_S", PATIENCE_S)
    supervisor = Supervisor()
    yield supervisor
    supervisor.stop(grace_s=0)


Add = Callable[..., Child]


@pytest.fixture
def add(supervisor: Supervisor, tmp_path: Path) -> Add:
    """Starts a child, and waits until it has said something."""

    def start(name: str = "child", command: Sequence[str] = IDLE, **more: Any) -> Child:
        child = Child(name, command, log=tmp_path / name, **more)
        supervisor.add(child)
        child.start()
        eventually((tmp_path / name).read_text)
        return child

    return start


def kill(child: Child) -> int | None:
    """Kills a child; returns the pid that it had."""
    assert child.process is not None
    child.process.kill()
    child.process.wait()
    return child.pid


def running_again(supervisor: Supervisor, child: Child, old_pid: int | None) -> bool:
    supervisor.poll()
    return child.alive() and child.pid != old_pid


def test_a_killed_child_is_started_again(
    supervisor: Supervisor, add: Add, caplog: pytest.LogCaptureFixture
) -> None:
    child, other = add(), add("other")
    other_pid, pid = other.pid, kill(child)
    eventually(lambda: running_again(supervisor, child, pid))
    assert other.pid == other_pid
    assert child.restarts == 1
    assert "ended with SIGKILL" in caplog.text


def test_a_child_that_cant_be_started_now_ends_no_other(
    supervisor: Supervisor, add: Add, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    child, other = add(), add("other")
    start = child.start

    def refused() -> None:
        monkeypatch.setattr(child, "start", start)
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(child, "start", refused)
    pid = kill(child)
    eventually(lambda: running_again(supervisor, child, pid))
    assert other.alive()
    assert "child can't be looked after: Resource temporarily unavailable" in caplog.text
    assert child.restarts == 1


def test_each_restart_waits_longer_until_a_child_has_lived_long(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr("jobs.clock.monotonic", lambda: now)
    child = Child("brief", ["false"])
    supervisor.add(child)
    supervisor.start()
    waits = []
    for lived_s in (0, 0, 0, 0, 0, 0, 0, 31):
        assert child.process is not None
        child.process.wait()
        now += lived_s
        supervisor.poll()
        waits.append(float(caplog.messages[-1].split()[-2]))
        now += waits[-1]
        supervisor.poll()
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.2]
    assert supervisor.unsteady() == ["brief was started again 8 times, at last after exit code 1"]


def test_stop_ends_all_and_kills_the_deaf(
    supervisor: Supervisor, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, deaf = add("idle"), add("deaf", STUBBORN)
    # The grace is over once the one that hears has ended: from then on each look is a second later.
    looks = count(1)
    now_s: Callable[[], float] = lambda: 0.0 if idle.alive() else float(next(looks))  # noqa: E731
    monkeypatch.setattr("jobs.clock.monotonic", now_s)
    supervisor.stop(grace_s=0.5)
    codes = [child.process and child.process.returncode for child in (idle, deaf)]
    assert codes == [-signal.SIGTERM, -signal.SIGKILL]


def test_what_a_child_leaves_ends_first(supervisor: Supervisor, add: Add, tmp_path: Path) -> None:
    child = add("parent", PARENT)
    grandchild = int((tmp_path / "parent").read_text())
    kill(child)
    supervisor.poll()
    eventually(lambda: gone(grandchild))


def test_a_child_has_its_session_and_environment(add: Add, tmp_path: Path) -> None:
    tell = "import os; print(os.environ['TOLD'], os.environ['PATH'], os.getsid(0) == os.getpid())"
    add("tell", [sys.executable, "-c", tell], env={"TOLD": "a"})
    assert (tmp_path / "tell").read_text() == f"a {os.environ['PATH']} True\n"


def test_run_ends_its_children_when_told(supervisor: Supervisor, tmp_path: Path) -> None:
    child = Child("idle", IDLE, log=tmp_path / "idle")
    supervisor.add(child)
    stop = threading.Event()

    def tell() -> None:
        eventually(child.alive)
        stop.set()

    threading.Thread(target=tell).start()
    supervisor.run(stop.is_set)
    assert not child.alive()


@pytest.mark.skipif(setpriv() is None, reason="no setpriv")
def test_a_killed_supervisor_takes_its_children_with_it() -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert not gone(child)
        owner.kill()
    eventually(lambda: gone(child))


def test_a_child_that_no_signal_ends_is_left_behind_and_replaced(
    supervisor: Supervisor, add: Add, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    child = add()
    first = child.process
    assert first is not None
    with monkeypatch.context() as patched:
        patched.setattr(children, "KILLED_WITHIN_S", 0.1)
        patched.setattr(os, "killpg", lambda *_: None)  # as one that waits in the kernel
        patched.setattr(first, "kill", lambda: None)
        child.kill()
    assert not child.alive()
    assert "doesn't end 0.1 s after SIGKILL" in caplog.text
    eventually(lambda: running_again(supervisor, child, first.pid))
    assert first.poll() is None
    first.kill()
    first.wait()


def test_an_ending_is_told_in_words() -> None:
    words = [describe_exit(code) for code in (0, -9, -99)]
    assert words == ["exit code 0", "SIGKILL", "signal 99"]


def test_a_log_that_grows_moves_aside_and_its_child_writes_on(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    log = tmp_path / "talker.log"
    read, write = os.pipe()
    command = [sys.executable, "-c", f"import os; os.dup2({read}, 0)\n{talk}"]
    supervisor.add(Child("talker", command, log=log, pass_fds=(read,)))
    supervisor.start()
    os.write(write, b"first, and more than ten bytes\n")
    eventually(log.read_text)
    monkeypatch.setattr(log_rotation.bound, "__defaults__", (10,))
    supervisor.poll()
    os.write(write, b"second\n")
    eventually(lambda: log.read_text() == "second\n")
    supervisor.poll()
    assert log.read_text() == "second\n"
    assert log.with_name("talker.log.1").read_text() == "first, and more than ten bytes\n"


def test_a_pause_ends_when_a_child_does(add: Add) -> None:
    child = add()
    child.terminate()
    assert child.process
    pause([child.process], 10_000)
    assert not child.alive()


def test_a_pause_ends_at_a_signal() -> None:
    code = (
        "import os, signal\nfrom ops.processes.children import StopSignal, pause\n"
        "stop_requested = StopSignal()\nos.kill(os.getpid(), signal.SIGTERM)\n"
        "pause([], 10_000)\nassert stop_requested()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
