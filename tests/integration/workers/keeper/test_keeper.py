"""What a keeper makes of a database that stood still."""

import os
import signal
import threading

from sqlalchemy import Engine, text

from jobs.settings import Settings
from jobs.store.queue import workers
from jobs.telemetry.metrics.metrics import REGISTRY
from tests.support.wait import slowdown
from workers.keeper.keeper import Keeper


def test_workers_that_could_not_speak_while_the_database_stood_still_are_not_lost(
    database: Engine, settings: Settings
) -> None:
    def lost() -> float:
        return REGISTRY.get_sample_value("millrace_worker_deaths_total", {"how": "silent"}) or 0.0

    before = lost()
    lease_s = slowdown()
    keeper = Keeper(settings.evolve(lease_s=lease_s))
    [lose] = [service for service in keeper.services if service.name == "lose workers"]
    with keeper.database.connect() as idle:
        backend = idle.scalar(text("SELECT pg_backend_pid()"))
    with database.begin() as tx:
        worker = workers.register(tx, "w", "default", "cpu", ["echo@1"])
        tx.execute(text("UPDATE workers SET heartbeat_at = now() - interval '30 s'"))
    os.kill(backend, signal.SIGSTOP)
    try:
        run = threading.Thread(target=lose.run_once)
        run.start()
        run.join(lease_s / 2)  # more than a third of a lease
    finally:
        os.kill(backend, signal.SIGCONT)
    run.join(lease_s / 4)
    assert run.is_alive()  # it lets others speak first
    with database.begin() as tx:
        workers.heartbeat(tx, worker, "ready")
    run.join()
    assert lost() == before
    keeper.database.dispose()
