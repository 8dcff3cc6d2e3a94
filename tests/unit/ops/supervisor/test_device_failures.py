"""Failures of a device in a row, deaths of a worker while it loads a model, and the fork server
of a supervisor's workers."""

import os
from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest

from jobs.models.model import Model
from jobs.processes import shared_fork_server
from jobs.processes.shared_fork_server import VARIABLE
from jobs.settings import Settings
from ops.processes.forking import ForkServer
from ops.supervisor.device_failures import DeviceFailures
from ops.supervisor.load_deaths import MOST_DEATHS, LoadDeaths
from ops.supervisor.worker import WatchedWorker
from workers.device.monitoring import watchdog
from workers.device.monitoring.load_history import LoadHistory

SICK, FIRST = watchdog.SICK_EXIT_CODE, watchdog.FIRST_LAUNCH_EXIT_CODE
CRASH = watchdog.DEVICE_CRASH_EXIT_CODE
ONE_OF_1000 = 15  # deaths that one item of a slice of 1,000 causes until it stands alone


def pauses(codes: list[int], lived_s: float = 5.0) -> list[float]:
    """Returns the pause after each of these ends."""
    device, found = DeviceFailures(), list[float]()
    for code in codes:
        device.count(code, lived_s)
        found.append(device.pause_s())
    return found


def test_launches_that_fail_quarantine_a_worker_only_if_they_fail_for_ever() -> None:
    for code in (FIRST, CRASH):
        assert set(pauses([code] * 2 * ONE_OF_1000)) == {1.0, 4.0, inf}
    # One item makes its launches fail, and stands alone in the end.
    assert inf not in pauses([SICK, FIRST, FIRST, FIRST])
    assert inf not in pauses([CRASH] * ONE_OF_1000)
    # It worked for long between its failures.
    assert set(pauses([CRASH] * 50, lived_s=400.0)) == {1.0}


def test_a_worker_that_lived_long_and_ended_otherwise_has_a_healthy_device() -> None:
    device = DeviceFailures()
    for code, lived_s in ((SICK, 1.0), (SICK, 1.0), (1, 60.0), (SICK, 1.0)):
        device.count(code, lived_s)
    assert device.pause_s() == 1.0
    assert pauses([SICK, SICK, SICK]) == [1.0, 4.0, inf], "it is quarantined at the third"


A, B = Model("a", "1", "echo"), Model("b", "1", "echo")


def test_a_model_is_loaded_last_after_a_death_and_left_out_after_three() -> None:
    deaths = LoadDeaths()
    for _ in range(MOST_DEATHS - 1):
        assert not deaths.count(A, "crashed")
        assert deaths.history([A, B]) == LoadHistory(("a@1",))
    assert deaths.count(A, "hung")
    found = deaths.history([A, B])
    assert found.late == ()
    assert "hung 3 times while it loaded" in found.left_out["a@1"]


def test_deaths_that_an_item_may_have_caused_count_a_third() -> None:
    deaths = LoadDeaths()
    left_out = [deaths.count(A, "crashed", busy=True) for _ in range(3 * MOST_DEATHS)]
    assert left_out.index(True) == 3 * MOST_DEATHS - 1
    # A changed entry and an orderly end begin anew.
    assert deaths.history([replace(A, memory_mb=1)]) == LoadHistory()
    deaths.forget()
    assert deaths.history([A]) == LoadHistory()


def test_a_history_that_is_too_long_is_told_in_part() -> None:
    reasons = {f"model-{n}@1": "it crashed" for n in range(100)}
    told = LoadHistory.unpack(LoadHistory(("late@1",), reasons).pack(1000))
    assert 0 < len(told.left_out) < 100
    assert LoadHistory.unpack(LoadHistory().pack(1000)) == LoadHistory()


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
