"""Fork server that the workers of a supervisor share, in all their incarnations."""

import os
from collections.abc import Iterator

import pytest

from jobs.processes import shared_fork_server
from jobs.processes.shared_fork_server import VARIABLE
from jobs.settings import Settings
from ops.processes.forking import ForkServer
from ops.supervisor.worker import WatchedWorker


@pytest.fixture(autouse=True)
def uncached() -> Iterator[None]:
    shared_fork_server.environment.cache_clear()
    yield
    shared_fork_server.environment.cache_clear()


def worker() -> WatchedWorker:
    return WatchedWorker(ForkServer(), "worker", Settings())


def test_a_supervisor_owns_the_server_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    one, two = worker().env[VARIABLE], worker().env[VARIABLE]
    assert one == two
    assert int(one.partition(":")[0]) == os.getpid()


def test_workers_inherit_the_server_of_a_supervisor_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1:/above")
    assert VARIABLE not in worker().env
