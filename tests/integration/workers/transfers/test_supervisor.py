"""The keeper's side: a process that works, a claim that is renewed meanwhile."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import active_children

import pytest
from sqlalchemy import text

from jobs.processes.pool import ProcessPool
from jobs.store.jobs import verbs
from tests.integration.workers.transfers.conftest import World
from tests.support.s3 import S3
from tests.support.store import job
from tests.support.wait import eventually, gone
from workers.keeper.service import run_service
from workers.transfers.child import KIND
from workers.transfers.supervisor import TransferSupervisor

LINE = b'"x"\n'


@contextmanager
def supervised(world: World, lease_s: float) -> Iterator[TransferSupervisor]:
    stopping = threading.Event()
    settings = world.context.settings.evolve(lease_s=lease_s)
    with closing(ProcessPool(KIND, settings)) as processes:
        supervisor = TransferSupervisor(
            "transfers", settings, world.context.database, processes, stopping
        )
        thread = threading.Thread(target=run_service, args=(supervisor, stopping))
        thread.start()
        try:
            yield supervisor
        finally:
            stopping.set()
            supervisor.wake.set()
            thread.join()


@pytest.fixture
def held(s3: S3) -> Iterator[Callable[[], None]]:
    """Reads wait until it is called; it waits for the first before."""
    go, asked = threading.Event(), threading.Event()

    def wait(method: str, path: str, key_id: str) -> None:
        if method == "GET" and "/open/" in path:
            asked.set()
            go.wait(30)

    s3.fault = wait
    yield lambda: (eventually(asked.is_set, 30), go.set())[1]
    go.set()


def pid() -> int:
    """Process of the supervisor, once there is one."""
    [process] = eventually(
        lambda: [one for one in active_children() if one.name == KIND.name], timeout_s=30
    )
    assert process.pid is not None
    return process.pid


def test_a_claim_is_renewed_and_its_process_goes_on(
    world: World, s3: S3, held: Callable[[], None]
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    due = "SELECT due_at - claimed_at > interval '2 s' FROM transfers"
    with supervised(world, lease_s=1.0) as supervisor:
        eventually(lambda: world.scalar(due), timeout_s=30)
        assert world.scalar("SELECT epoch FROM transfers") == 1
        held()
        assert os.getpriority(os.PRIO_PROCESS, pid()) > os.getpriority(os.PRIO_PROCESS, 0)
        eventually(lambda: job(world.database, id).state == "queued")
        first = pid()
        again = world.coming({"url": s3.put("open/in.jsonl", LINE)})
        supervisor.wake.set()
        eventually(lambda: job(world.database, again).state == "queued")
        assert pid() == first
    assert gone(first)


def test_a_cancel_ends_the_process_that_reads(
    world: World, s3: S3, held: Callable[[], None]
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with supervised(world, lease_s=1.0):
        eventually(lambda: world.scalar("SELECT claimed_at FROM transfers"), timeout_s=30)
        reads = pid()
        with world.database.begin() as tx:
            verbs.cancel(tx, id)
        eventually(lambda: gone(reads), timeout_s=30)
    assert job(world.database, id).state == "cancelled"


def test_a_keeper_that_stops_gives_back_what_it_has_in_hand(
    world: World, s3: S3, held: Callable[[], None]
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with supervised(world, lease_s=60.0):
        eventually(lambda: world.scalar("SELECT claimed_at FROM transfers"), timeout_s=30)
    with world.database.connect() as tx:
        row = tx.execute(text("SELECT *, due_at <= now() AS due FROM transfers")).mappings().one()
    assert (row["tries"], row["deaths"], row["claimed_at"], row["due"]) == (0, 0, None, True)
    assert job(world.database, id).state == "validating"


def test_a_process_that_can_not_start_is_no_fault_of_the_job(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    broken = world.context.settings.home / "models.toml"
    broken.write_text("no = [")
    settings = world.context.settings.evolve(models=broken)
    with closing(ProcessPool(KIND, settings)) as processes:
        assert TransferSupervisor(
            "transfers", settings, world.context.database, processes, threading.Event()
        ).run_once()
    with world.database.connect() as tx:
        row = tx.execute(text("SELECT * FROM transfers")).mappings().one()
    assert (row["deaths"], row["tries"]) == (0, 1)
    assert "can't start" in row["last_error"]
    assert job(world.database, id).state == "validating"
