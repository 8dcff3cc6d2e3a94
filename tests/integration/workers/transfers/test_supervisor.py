"""The keeper's side: a process that works, a claim that is renewed meanwhile."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from multiprocessing import active_children
from typing import Any

import pytest
from sqlalchemy import text

from jobs import clock
from jobs.models.builtin_models import SAMPLES
from jobs.store.jobs import transfers, verbs
from jobs.usecases.submit import Order, submit_source
from tests.integration.workers.transfers.conftest import World
from tests.support.stores.s3 import BUCKET, S3
from tests.support.stores.store import job
from tests.support.stores.transactions import transact
from tests.support.wait import PATIENCE_S, eventually, gone
from workers.keeper.service import run_service
from workers.transfers.child import KIND
from workers.transfers.supervisor import PROCESSES, TransferPool, TransferSupervisor

LINE = b'"x"\n'


@contextmanager
def supervised(
    world: World, lease_s: float, threads: int = 1, **changes: Any
) -> Iterator[TransferSupervisor]:
    stopping = threading.Event()
    settings = world.context.settings.evolve(lease_s=lease_s, **changes)
    with closing(TransferPool(settings)) as pool, ExitStack() as stack:
        for n in range(threads):
            supervisor = TransferSupervisor(
                f"transfers {n}", settings, world.context.database, pool, stopping
            )
            thread = threading.Thread(target=run_service, args=(supervisor, stopping))
            thread.start()
            stack.callback(thread.join)
            stack.callback(supervisor.wake.set)
        stack.callback(stopping.set)
        yield supervisor


class Reads:
    """Reads of objects, which wait until they may go on."""

    def __init__(self) -> None:
        self._may_go_on, self._asked = threading.Event(), threading.Event()

    def wait(self, method: str, path: str, key_id: str) -> None:
        if method == "GET" and "/open/" in path:
            self._asked.set()
            self._may_go_on.wait(PATIENCE_S)

    def begun(self) -> None:
        """Waits until a process reads."""
        assert self._asked.wait(PATIENCE_S)

    def go_on(self) -> None:
        self._may_go_on.set()


@pytest.fixture
def reads(s3: S3) -> Iterator[Reads]:
    made = Reads()
    s3.fault = made.wait
    yield made
    made.go_on()


def pid() -> int:
    """Process of the supervisor, once there is one."""
    [process] = eventually(lambda: [one for one in active_children() if one.name == KIND.name])
    assert process.pid is not None
    return process.pid


def test_a_renewed_claims_process_goes_on(
    world: World, s3: S3, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    due = "SELECT due_at - claimed_at > interval '60 s' FROM transfers"
    ahead_s = count(step=20)  # so that a renewal is due at each look
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + next(ahead_s))
    with supervised(world, lease_s=60.0) as supervisor:
        eventually(lambda: world.scalar(due))
        assert world.scalar("SELECT epoch FROM transfers") == 1
        reads.begun()
        reads.go_on()
        assert os.getpriority(os.PRIO_PROCESS, pid()) > os.getpriority(os.PRIO_PROCESS, 0)
        eventually(lambda: job(world.database, id).state == "queued")
        first = pid()
        again = world.coming({"url": s3.put("open/in.jsonl", LINE)})
        supervisor.wake.set()
        eventually(lambda: job(world.database, again).state == "queued")
        assert pid() == first
    assert gone(first)


def test_a_process_that_ends_a_transfer_as_its_claim_is_renewed_is_not_killed(
    world: World, s3: S3, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})

    def renew(*_: object) -> bool:
        """Finds no claim, since the process has ended the transfer meanwhile."""
        reads.begun()
        reads.go_on()
        eventually(lambda: job(world.database, id).state == "queued")
        return False

    with supervised(world, lease_s=4.0) as supervisor:
        first = eventually(pid)
        monkeypatch.setattr(transfers, "renew", renew)
        eventually(lambda: job(world.database, id).state == "queued")
        monkeypatch.undo()
        again = world.coming({"url": s3.put("open/in.jsonl", LINE)})
        supervisor.wake.set()
        eventually(lambda: job(world.database, again).state == "queued")
        assert pid() == first


def test_a_cancel_ends_its_reading_process(world: World, s3: S3, reads: Reads) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with supervised(world, lease_s=1.0):
        reads.begun()
        process = pid()
        transact(world.database, verbs.cancel, id)
        eventually(lambda: gone(process))
    assert job(world.database, id).state == "cancelled"


def test_a_keeper_that_stops_gives_back_what_it_has_in_hand(
    world: World, s3: S3, reads: Reads
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with supervised(world, lease_s=60.0):
        reads.begun()
    with world.database.connect() as tx:
        row = tx.execute(text("SELECT *, due_at <= now() AS due FROM transfers")).mappings().one()
    assert (row["tries"], row["deaths"], row["claimed_at"], row["due"]) == (0, 0, None, True)
    assert job(world.database, id).state == "validating"


def test_a_process_that_can_not_start_is_no_fault_of_the_job(world: World, s3: S3) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    broken = world.context.settings.home / "models.toml"
    broken.write_text("no = [")
    settings = world.context.settings.evolve(models=broken)
    with closing(TransferPool(settings)) as pool:
        assert TransferSupervisor(
            "transfers", settings, world.context.database, pool, threading.Event()
        ).run_once()
    with world.database.connect() as tx:
        row = tx.execute(text("SELECT * FROM transfers")).mappings().one()
    assert (row["deaths"], row["tries"]) == (0, 1)
    assert "can't start" in row["last_error"]
    assert job(world.database, id).state == "validating"


def test_a_tenant_whose_imports_last_leaves_a_process_to_the_next_tenant(
    world: World, s3: S3, reads: Reads
) -> None:
    long = s3.put("open/in.jsonl", LINE)
    many = [world.coming({"url": long}) for _ in range(4)]
    running = "SELECT count(*) FROM transfers WHERE claimed_at IS NOT NULL AND due_at > now()"
    with supervised(world, lease_s=60.0, threads=PROCESSES):
        eventually(lambda: world.scalar(running) == PROCESSES - 1)
        s3.put("of/other/in.jsonl", LINE)
        source = {"url": f"s3://{BUCKET}/of/other/in.jsonl"}
        submit_source(world.database, SAMPLES, "other", Order("echo"), source)
        state = "SELECT state FROM jobs WHERE tenant_id = 'other'"
        eventually(lambda: world.scalar(state) == "queued")
        assert {job(world.database, id).state for id in many} == {"validating"}
        reads.go_on()
        for id in many:
            eventually(lambda id=id: job(world.database, id).state == "queued")


@pytest.mark.parametrize(
    ("how", "deaths", "kills"), [(signal.SIGKILL, 0, 1), (signal.SIGSEGV, 1, 0)]
)
def test_kills_from_outside_are_told_apart_from_crashes(
    world: World, s3: S3, reads: Reads, how: int, deaths: int, kills: int
) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with supervised(world, lease_s=60.0):
        reads.begun()
        os.kill(pid(), how)
        eventually(lambda: world.scalar("SELECT last_error FROM transfers"))
        with world.database.begin() as tx:
            counts = tx.execute(
                text("SELECT deaths, kills, tries, claimed_at IS NULL FROM transfers")
            )
            found = tuple(counts.one())
            verbs.cancel(tx, id)
        claimed_again = 0 if found[3] else 1
        assert found[:2] == (deaths, kills + claimed_again)


def test_a_process_that_grows_is_killed(world: World, s3: S3, reads: Reads) -> None:
    id = world.coming({"url": s3.put("open/in.jsonl", LINE)})
    with supervised(world, lease_s=60.0, child_max_mb=20):  # less than its modules take
        eventually(lambda: world.scalar("SELECT deaths FROM transfers") >= 2)
        assert "MILLRACE_CHILD_MAX_MB" in world.scalar("SELECT last_error FROM transfers")
        transact(world.database, verbs.cancel, id)
