"""A database, a receiver and workers with trouble, found by alert, dashboard and `millrace why`."""

import os
import signal
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from ops.supervisor.platform import Platform
from tests.acceptance.telemetry.why.scenes import FOUND_WITHIN_S, TROUBLES, Scene, explained, staged
from tests.support.models.entries import function
from tests.support.platforms import Platforms
from tests.support.servers.receiver import Received, Reply, receiving
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

DEADLY = function("why:deadly")


def test_a_receiver_of_webhooks_is_slow(scene: Scene) -> None:
    done = threading.Event()

    def slowly(request: Received) -> Reply:
        done.wait(3.0)
        return Reply()

    def submit() -> None:
        order = {"model": "echo", "items": ["x"], "webhook": {"url": receiver.url}}
        with scene.client("alice") as http:
            for _ in range(12):
                http.post("/jobs", json=order).raise_for_status()
            while not done.wait(0.5):
                http.post("/jobs", json=order).raise_for_status()

    with receiving() as receiver:
        receiver.reply = slowly
        submitting = threading.Thread(target=submit)
        submitting.start()
        try:
            explained(scene, TROUBLES["receiver"])
        finally:
            done.set()
            submitting.join()


def test_the_database_stalls_since_somebody_locks_a_table(scene: Scene) -> None:
    with scene.database.begin() as tx:
        tx.execute(text("LOCK TABLE slices"))
        holder = tx.scalar(text("SELECT pg_backend_pid()"))
        http = scene.client("alice")
        order = {"model": "echo", "items": ["x"]}
        waiting = threading.Thread(target=lambda: http.post("/jobs", json=order))
        waiting.start()
        tx.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        found = explained(scene, TROUBLES["lock"])
        assert f"process {holder} " in found["words"]
    waiting.join()
    http.close()


def test_the_database_stalls_since_its_processes_are_stopped(scene: Scene) -> None:
    processes = postgres_processes(scene.platform)
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        explained(scene, TROUBLES["stopped"])
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
    assert eventually(lambda: "database_stalls" not in {one["code"] for one in scene.why()})


def test_workers_die(platforms: Platforms, tmp_path: Path) -> None:
    with staged(platforms, tmp_path, DEADLY) as scene, scene.client("alice") as http:
        order = {"model": "deadly", "items": ["die"] * 20}
        job = http.post("/jobs", json=order).raise_for_status().json()["id"]
        eventually(lambda: has_died(scene, 3), FOUND_WITHIN_S)
        explained(scene, TROUBLES["deaths"], "no_worker")
        assert "suspect_slices" in scene.by_command(job, who="alice")


def has_died(scene: Scene, times: int) -> bool:
    """Keeps the platform going meanwhile, as `millrace up` does."""
    scene.platform.poll()
    with scene.database.begin() as tx:
        return int(tx.scalar(text("SELECT count(*) FROM workers WHERE died IS NOT NULL"))) >= times


def postgres_processes(platform: Platform) -> list[int]:
    """The platform's server and its children."""
    server = platform.servers.postgres.process
    assert server
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [server.pid, *map(int, children)]
