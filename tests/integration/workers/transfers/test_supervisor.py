"""The keeper's side: a process that works, a claim that is renewed meanwhile."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from jobs.store.jobs import verbs
from tests.integration.workers.transfers.conftest import World
from tests.support.s3 import S3
from tests.support.store import job
from tests.support.wait import eventually, gone
from workers.transfers.supervisor import TransferSupervisor

LINE = b'"x"\n'


@contextmanager
def courier_at_work(world: World, lease_s: float) -> Iterator[TransferSupervisor]:
    stopping = threading.Event()
    settings = world.shared.settings.evolve(lease_s=lease_s)
    courier = TransferSupervisor(settings, world.shared.database, stopping)
    thread = threading.Thread(target=courier.run)
    thread.start()
    courier.notify()
    try:
        yield courier
    finally:
        stopping.set()
        courier.notify()
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


def pid(courier: TransferSupervisor) -> int:
    """Of its process, once there is one."""
    process = eventually(lambda: courier._process, timeout_s=30)
    assert process is not None
    found = process._process.pid
    assert found is not None
    return found


def test_a_claim_is_renewed_and_its_process_goes_on(
    world: World, s3: S3, held: Callable[[], None]
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    due = "SELECT due_at - claimed_at > interval '2 s' FROM transfers"
    with courier_at_work(world, lease_s=1.0) as courier:
        eventually(lambda: world.scalar(due), timeout_s=30)
        assert world.scalar("SELECT epoch FROM transfers") == 1
        held()
        assert os.getpriority(os.PRIO_PROCESS, pid(courier)) > os.getpriority(os.PRIO_PROCESS, 0)
        eventually(lambda: job(world.database, id).state == "queued")
        first = pid(courier)
        again = world.coming({"url": s3.put("open/in.jsonl", LINE)})
        courier.notify()
        eventually(lambda: job(world.database, again).state == "queued")
        assert pid(courier) == first
    assert gone(first)


def test_a_cancel_ends_the_process_that_reads(
    world: World, s3: S3, held: Callable[[], None]
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with courier_at_work(world, lease_s=1.0) as courier:
        eventually(lambda: world.scalar("SELECT claimed_at FROM transfers"), timeout_s=30)
        reads = pid(courier)
        with world.database.begin() as tx:
            verbs.cancel(tx, id)
        eventually(lambda: gone(reads), timeout_s=30)
    assert job(world.database, id).state == "cancelled"


def test_a_keeper_that_stops_gives_back_what_it_has_in_hand(
    world: World, s3: S3, held: Callable[[], None]
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with courier_at_work(world, lease_s=60.0):
        eventually(lambda: world.scalar("SELECT claimed_at FROM transfers"), timeout_s=30)
    with world.database.connect() as tx:
        row = tx.execute(text("SELECT *, due_at <= now() AS due FROM transfers")).mappings().one()
    assert (row["tries"], row["deaths"], row["claimed_at"], row["due"]) == (0, 0, None, True)
    assert job(world.database, id).state == "validating"


def test_a_process_that_can_not_start_is_no_fault_of_the_job(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    broken = world.shared.settings.home / "models.toml"
    broken.write_text("no = [")
    courier = TransferSupervisor(
        world.shared.settings.evolve(models=broken), world.shared.database, threading.Event()
    )
    assert courier.run_once()
    with world.database.connect() as tx:
        row = tx.execute(text("SELECT * FROM transfers")).mappings().one()
    assert (row["deaths"], row["tries"]) == (0, 1)
    assert "can't start" in row["last_error"]
    assert job(world.database, id).state == "validating"
