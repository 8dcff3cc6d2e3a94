"""What one kind of actuator does alone: workers of this machine, and a program."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Engine, text

from jobs import clock
from jobs.scaling.policy import Policy
from jobs.settings import Settings
from jobs.states import API_POOL
from jobs.store.queue import workers as store
from jobs.store.queue.workers import ModelRow
from jobs.store.scaling import policies
from ops.processes.children import Child, Supervisor
from ops.supervisor.local_workers import LocalWorkers
from ops.supervisor.scaling import ScalingFollower
from tests.integration.ops.actuators.rigs import POOL, Workers, program
from tests.support.wait import eventually
from workers.keeper.scaling.actuators import command
from workers.keeper.scaling.actuators.command import CommandActuator
from workers.keeper.scaling.actuators.protocol import ActuatorError


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers()
    yield made
    made.supervisor.stop(0.0)


def test_the_last_worker_goes_first_its_place_is_taken_once_it_ended(workers: Workers) -> None:
    workers.local.apply(POOL, 3)
    workers.local.apply(POOL, 2)
    assert workers.alive == ["worker-1", "worker-2"]
    workers.local.apply(POOL, 3)
    assert workers.alive == ["worker-1", "worker-2", "worker-4"]
    eventually(workers.has_retired)
    workers.local.apply(POOL, 5)
    assert workers.alive == [f"worker-{n}" for n in range(1, 6)]


def test_a_worker_that_drains_is_not_started_again(workers: Workers) -> None:
    workers.local.apply(POOL, 1)
    [child] = workers.supervisor.children
    workers.local.apply(POOL, 0)
    eventually(workers.has_retired)
    assert (child.alive(), child.restarts, workers.supervisor.children) == (False, 0, [])


def test_a_worker_that_does_not_drain_is_killed_after_its_grace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deaf = Workers("trap '' TERM; echo deaf; while :; do sleep 1; done", log, grace_s=0.2)
    with closing(SimpleNamespace(close=lambda: deaf.supervisor.stop(0.0))):
        deaf.local.apply(POOL, 1)
        [child] = deaf.supervisor.children
        eventually(log.read_text)
        deaf.local.apply(POOL, 0)
        eventually(deaf.has_retired)
    assert child.process.returncode == -signal.SIGKILL


def test_no_more_workers_than_there_are_places(workers: Workers) -> None:
    for _ in range(2):
        with pytest.raises(ActuatorError, match="--max-workers 9"):
            workers.local.apply(POOL, 9)
    assert len(workers.alive) == 5
    apis = LocalWorkers(Supervisor(), API_POOL, [], Child, 0, kind="apis")
    with pytest.raises(ActuatorError, match=r"2 apis .* --max-apis 2"):
        apis.apply(API_POOL, 2)


def registered(database: Engine, state: str, *models: str, pool: str = POOL) -> SimpleNamespace:
    """Adds a worker; returns it as its supervisor sees it."""
    with database.begin() as tx:
        id = store.register(tx, "host:7", pool, "cpu", models)
        store.heartbeat(tx, id, state)
        store.report_models(tx, id, [ModelRow(model, "ready", 1, 1, "") for model in models])
    return SimpleNamespace(incarnation=id)


def test_weights_that_one_worker_has_are_last_to_go(database: Engine, settings: Settings) -> None:
    old = registered(database, "ready", "a@1", "of-another@1")
    holder = registered(database, "ready", "a@1", "rare@1")
    new = registered(database, "ready", "a@1")
    loads = SimpleNamespace(incarnation=0)
    registered(database, "ready", "of-another@1")  # of another supervisor
    registered(database, "draining", "rare@1")
    registered(database, "ready", "rare@1", pool="another")
    leaving = registered(database, "ready", "rare@1")
    follower = ScalingFollower(settings.evolve(lease_s=600), POOL)
    with closing(SimpleNamespace(close=follower.stop)):
        follower.look()
        by_place = {1: old, 2: holder, 3: new, 4: loads}
        order = follower.drain_order(by_place, [leaving.incarnation])
        assert order == [4, 3, 1, 2]
        assert follower.drain_order(by_place, []) == [4, 3, 2, 1]


def test_what_is_wanted_is_read_again_after_a_fault(
    database: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.begin() as tx:
        terms = Policy(max_replicas=4, actuator="local")
        policies.put(tx, POOL, terms, "key_test")
        policies.decide(tx, POOL, 3, "load", {})
    follower = ScalingFollower(settings, POOL)
    look, failed = follower.look, threading.Event()

    def faulty() -> None:
        if not failed.is_set():
            failed.set()
            raise KeyError("a fault")
        look()

    monkeypatch.setattr(follower, "look", faulty)
    with closing(SimpleNamespace(close=follower.stop)):
        follower.start()
        eventually(lambda: follower.wanted == 3)
        assert failed.is_set()


def test_a_drained_worker_has_nothing_to_lose(database: Engine, settings: Settings) -> None:
    drained = registered(database, "draining", "rare@1")
    with database.begin() as tx:
        tx.execute(text("UPDATE workers SET drain_asked_at = now()"))
        assert [(one.incarnation, one.models) for one in store.held(tx, POOL, 60)] == [
            (drained.incarnation, ())
        ]


def test_the_same_number_is_told_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    actuator = CommandActuator(program(tmp_path, f'echo "$*" >> {told}'))
    now_s = clock.monotonic()
    for after_s in (0.0, 1.0, command.AGAIN_S + 1):
        monkeypatch.setattr(clock, "monotonic", lambda at_s=now_s + after_s: at_s)
        actuator.apply("a", 3)
    assert told.read_text() == "a 3\na 3\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo no quota left >&2; exit 3", "scale a 3 ended with 3: no quota left"),
        ("sleep 9", "did not end within 0.1 s"),
        (None, "can't be run: No such file or directory"),
        ("", "set MILLRACE_SCALE_COMMAND"),
    ],
)
def test_a_program_that_fails_says_why(tmp_path: Path, text: str | None, why: str) -> None:
    path = program(tmp_path, text) if text else "" if text == "" else str(tmp_path / "none")
    within_s = 0.1 if text == "sleep 9" else 30.0
    with pytest.raises(ActuatorError, match=re.escape(why)):
        CommandActuator(path, within_s).apply("a", 3)
