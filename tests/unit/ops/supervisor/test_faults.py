"""Faults of parts of `millrace up` that nobody foresaw: the other parts go on."""

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from jobs.settings import Settings
from jobs.store.scaling.leader import Leadership
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Process, Started, Supervisor
from ops.processes.forking import ForkServer
from ops.supervisor import database_setup, scaling
from ops.supervisor import platform as platform_module
from ops.supervisor.local_workers import LocalWorkers
from ops.supervisor.platform import Platform
from ops.supervisor.readiness import NotReady
from ops.supervisor.scaling import ScalingFollower
from ops.supervisor.worker import WatchedWorker
from tests.support.wait import PATIENCE_S, eventually
from workers.keeper.scaling.actuators.protocol import ActuatorError

DATABASE = Settings(database_url="postgresql+psycopg://127.0.0.1:9/none")
"""Settings with a database that nobody asks."""


def fail(*_: object) -> None:
    raise KeyError("a fault")


def reporting(worker: WatchedWorker) -> bool:
    """Returns True while a thread reports the worker alive."""
    return any(thread.name == f"reports of {worker.name}" for thread in threading.enumerate())


def no_thread(*_: object) -> None:
    raise RuntimeError("no thread")


class IdleWorker(WatchedWorker):
    """Worker that idles, once registered."""

    def _spawn(self, output: IO[bytes] | None) -> Process:
        return Started(["sleep", "600"])

    def ready(self) -> bool:
        return True


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[IdleWorker]:
    """Worker, not started, under a name that no other test's has."""
    worker = IdleWorker(ForkServer(), tmp_path.name, DATABASE.evolve(lease_s=1.0))
    yield worker
    worker.retired()
    if worker.process:
        worker.process.kill()
        worker.process.wait()


@pytest.mark.heavy
def test_reports_that_a_worker_is_alive_go_on_after_a_fault(
    worker: IdleWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reported, acts = threading.Event(), iter([fail, fail])

    def report(database: object) -> None:
        next(acts, lambda: reported.set())()

    monkeypatch.setattr(worker, "_report_state", report)
    worker.start()
    assert reported.wait(PATIENCE_S)
    assert f"the thread 'reports of {worker.name}' failed" in caplog.text
    worker.retired()
    eventually(lambda: not reporting(worker))


@pytest.mark.heavy
def test_a_worker_whose_reports_cant_begin_isnt_started_and_is_tried_again(
    worker: IdleWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="no thread"):
            worker.start()
    assert not worker.alive()
    worker.start()
    assert worker.alive()
    assert reporting(worker)


@pytest.mark.heavy
def test_a_worker_that_cant_be_forked_leaves_no_thread_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: object) -> Process:
        raise OSError("Resource temporarily unavailable")

    made = list[WatchedWorker]()

    def new(place: int) -> WatchedWorker:
        made.append(WatchedWorker(ForkServer(), f"{tmp_path.name}-{place}", DATABASE))
        return made[-1]

    monkeypatch.setattr(WatchedWorker, "_spawn", no_process)
    local = LocalWorkers(Supervisor(), DATABASE.pool, [], new, 1)
    with pytest.raises(ActuatorError, match=r"-1 can't be started: Resource"):
        local.apply(DATABASE.pool, 1)
    eventually(lambda: not reporting(made[0]))
    file = Path(f"/proc/self/fd/{made[0].pass_fds[0]}")
    assert "millrace-progress" in str(file.readlink())
    made.clear()
    gc.collect()
    assert not file.is_symlink() or "millrace-progress" not in str(file.readlink())


def test_a_thread_that_hangs_in_its_look_ends_the_lead_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scaling, "_ANSWER_S", 0.0)
    follower, looks, answer = (
        ScalingFollower(DATABASE, "default"),
        threading.Event(),
        threading.Event(),
    )
    released = list[str]()

    def look() -> None:
        looks.set()
        answer.wait(PATIENCE_S)

    def release(_: Leadership) -> None:
        released.append(threading.current_thread().name)

    monkeypatch.setattr(follower, "look", look)
    monkeypatch.setattr(Leadership, "release", release)
    follower.start()
    assert looks.wait(PATIENCE_S)
    follower.stop()
    assert released == []
    answer.set()
    eventually(lambda: released == ["scaling of default"])


@pytest.mark.heavy
def test_a_death_is_counted_once_where_no_thread_can_report_it(
    worker: IdleWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker.start()
    counted = list[int]()
    monkeypatch.setattr(worker, "_count_device_failure", counted.append)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert worker.process
    worker.process.kill()
    worker.process.wait()
    worker.look()
    worker.look()
    assert counted == [-9]
    assert f"'death of {worker.name}' can't be started: no thread" in caplog.text


@pytest.fixture
def platform(tmp_path: Path) -> Callable[[], Platform]:
    """Makes a platform that isn't started."""
    return lambda: Platform(Settings(home=tmp_path / "home", metrics=False))


def test_children_are_watched_while_the_watch_of_the_servers_fails(
    platform: Callable[[], Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EmbeddedServers, "poll", fail)
    made, looks = platform(), list[int]()
    for child in made.supervisor.children:
        monkeypatch.setattr(child, "keep_alive", lambda: looks.append(1))
    for _ in range(3):
        made.poll()
    assert len(looks) == 3 * len(made.supervisor.children)


def test_a_stop_stops_all_whatever_a_part_of_it_raises(
    platform: Callable[[], Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, stopped = platform(), list[str]()
    monkeypatch.setattr(made.servers, "stop", lambda: stopped.append("servers"))
    monkeypatch.setattr(made.supervisor, "stop", fail)
    with pytest.raises(KeyError):
        made.stop()
    assert stopped == ["servers"]


@pytest.mark.heavy
def test_a_start_in_vain_names_what_ends_again_and_again(
    platform: Callable[[], Platform], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(settings: Settings, poll: Callable[[], bool]) -> None:
        eventually(lambda: (poll(), api.restarts)[1] >= 2)
        raise NotReady("not ready within 120 s: the api doesn't answer; see the log above")

    monkeypatch.setattr(platform_module, "await_ready", wait)
    monkeypatch.setattr(database_setup, "prepare", lambda *_: None)
    for name in ("launch", "await_ready", "poll"):
        monkeypatch.setattr(EmbeddedServers, name, lambda _: None)
    monkeypatch.setattr(ForkServer, "start", lambda _: None)
    made = platform()
    [api] = [child for child in made.supervisor.children if child.name == "api"]
    made.supervisor.children[:] = [api]
    monkeypatch.setattr(api, "_spawn", lambda _: Started(["sh", "-c", "exit 3"]))
    with pytest.raises(NotReady, match=r"above; api was started again 2 times, .* exit code 3$"):
        made.start()
