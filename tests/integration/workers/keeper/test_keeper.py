"""What a keeper makes of a database that stood still, and of its own clock."""

import os
import signal
import threading
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from jobs import clock
from jobs.settings import Settings
from jobs.store.queue import workers
from jobs.telemetry.metrics.metrics import REGISTRY
from tests.support.stores.store import at, count, ended, post
from tests.support.stores.transactions import execute, scalar, transact
from tests.support.wait import eventually, pause, slowdown
from workers.keeper import cleanup, keeper
from workers.keeper.keeper import Keeper


def lost() -> float:
    return REGISTRY.get_sample_value("millrace_worker_deaths_total", {"how": "silent"}) or 0.0


def silent_worker(database: Engine) -> int:
    with database.begin() as tx:
        worker = workers.register(tx, "w", "default", "cpu", ["echo@1"])
        tx.execute(text("UPDATE workers SET heartbeat_at = now() - interval '1 h'"))
    return worker


def test_workers_that_could_not_speak_while_the_database_stood_still_are_not_lost(
    database: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "_SILENT_EVERY_S", 0.01)
    before, lease_s = lost(), slowdown()
    run = Keeper(settings.evolve(lease_s=lease_s))
    [lose] = [service for service in run.services if service.name == "lose workers"]
    backend = scalar(run.database, "SELECT pg_backend_pid()")
    silent_worker(database)
    assert lose.run_once() == 0  # a new keeper lets others speak first
    eventually(lose.run_once)
    assert lost() == before + 1

    worker = silent_worker(database)
    os.kill(backend, signal.SIGSTOP)
    try:
        look = threading.Thread(target=lose.run_once)
        look.start()
        pause(lease_s / 2)  # more than a third of a lease
    finally:
        os.kill(backend, signal.SIGCONT)
    look.join()
    assert lost() == before + 1
    transact(database, workers.heartbeat, worker, "ready")
    run.database.dispose()


@pytest.mark.parametrize("days", [-300, 300])
def test_age_is_told_by_the_databases_clock(
    database: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    now = clock.now()
    with at(now - timedelta(days=200), database):
        old = post(database, "x")
    young = post(database, "x")
    execute(database, "UPDATE jobs SET state = 'completed'")
    ended(database, old, now - timedelta(days=200))
    ended(database, young, now)
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=days))
    kept = settings.evolve(keep_items_days=100, keep_results_days=100, keep_jobs_days=100)
    duties = {duty.name: duty.step for duty in cleanup.duties(kept)}
    for name in ("mark items", "mark results", "forget jobs"):
        assert transact(database, duties[name]) == 1, name
    assert count(database, "jobs") == count(database, "jobs", young) == 1
