"""Verbs on large jobs, and all verbs and finishers at once: nobody deadlocks, every job ends."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from jobs.errors import Conflict, NotFound
from jobs.settings import Settings
from jobs.store.db import Tx
from jobs.store.jobs import deletion, verbs
from jobs.store.queue import finish, reap
from jobs.usecases.cancel import cancel
from tests.support.stores import store
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import claim, count, job, lapse, post, settle
from tests.support.stores.transactions import connected, execute, scalars, transact
from tests.support.wait import PATIENCE_S, eventually
from workers.keeper import keeper

ROUNDS = 60

UNDONE = """SELECT id FROM jobs WHERE finished_at IS NULL UNION SELECT job_id FROM deletions"""


def expire(tx: Tx, job: UUID) -> None:
    """Its time is up; the keepers find out."""
    tx.execute(text("UPDATE jobs SET expires_at = now() WHERE id = :job"), {"job": job})


VERBS = (verbs.cancel, verbs.pause, verbs.resume, verbs.retry, expire, verbs.delete)
WEIGHTS = (5, 5, 5, 5, 2, 1)


def test_verbs_and_finishers_at_once_lose_nothing(database: Engine, database_url: str) -> None:
    errors: list[OperationalError] = []
    over, verbs_over = threading.Event(), threading.Event()

    def use_verbs(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(ROUNDS):
            [verb] = dice.choices(VERBS, WEIGHTS)
            attempt(lambda: _verb(pool, verb, dice.choice(jobs)))  # noqa: B023
            if len(_alive(pool)) < len(jobs) and dice.random() < 0.5:
                jobs[dice.randrange(len(jobs))] = post(pool, *["x"] * 2500)

    def repeat(end: threading.Event, act: Callable[[], object]) -> None:
        while not end.is_set():
            attempt(act)

    def attempt(act: Callable[[], object]) -> None:
        try:
            act()
        except (Conflict, NotFound):
            pass
        except OperationalError as error:
            errors.append(error)

    others = (
        # What one that failed had claimed is free again long before the wait below ends.
        *[(over, lambda: settle(pool, claim(pool, lease_s=5)))] * 3,
        # A worker that dies, while there are verbs: after them all that is claimed ends.
        (verbs_over, lambda: claim(pool, lease_s=0)),
        *[(over, lambda: _keep(pool))] * 2,
    )
    with connected(database_url, pool_size=16) as pool, ThreadPoolExecutor(4 + 6) as threads:
        jobs: list[UUID] = [post(pool, *["x"] * 2500) for _ in range(4)]
        working = [threads.submit(repeat, *other) for other in others]
        try:
            list(threads.map(use_verbs, range(4)))
            verbs_over.set()
            for one in _alive(pool):
                _verb(pool, verbs.resume, one)
            eventually(lambda: errors or not scalars(database, UNDONE))
        finally:
            over.set()
            verbs_over.set()
        for one in working:
            one.result()
    assert errors == []
    assert scalars(database, UNDONE) == []
    assert broken_invariants(database) == set()


@pytest.mark.parametrize(("name", "look"), [("cancel", "unended_cancelled"), ("expire", "expired")])
def test_a_keeper_outlives_that_a_job_is_deleted_under_its_hands(
    database: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, look: str
) -> None:
    job, looked = post(database, "x"), getattr(verbs, look)
    [duty] = [duty for duty in keeper.duties(settings) if duty.name == name]

    def looks_in_time(tx: Tx) -> list[UUID]:
        found = list(looked(tx))
        for verb in (verbs.cancel, verbs.delete):
            if job in _alive(database):
                _verb(database, verb, job)
        return found or [job]

    monkeypatch.setattr(verbs, look, looks_in_time)
    assert transact(database, duty.step) > 0


def _verb(pool: Engine, verb: object, job: UUID) -> None:
    transact(pool, verb, job)  # type: ignore[operator]


def _keep(pool: Engine) -> None:
    """What a keeper does, once."""
    transact(pool, reap.reap, 0.0)
    with pool.begin() as tx:
        if found := verbs.unended_cancelled(tx):
            verbs.end_cancelled(tx, random.choice(found))
    with pool.begin() as tx:
        if found := verbs.expired(tx):
            verbs.expire(tx, random.choice(found))
    transact(pool, finish.MissedJobs().close)
    transact(pool, deletion.erase_rows)
    with pool.begin() as tx:
        deletion.erase_payloads(tx, lambda job: None)


def _alive(pool: Engine) -> list[UUID]:
    return scalars(pool, "SELECT id FROM jobs")


# -- jobs that are larger than what one transaction ends


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of echo is all that a transaction ends."""
    monkeypatch.setattr(finish, "MOST_ITEMS", 1000)


def end_cancelled(database: Engine) -> None:
    while transact(database, store.end_cancelled):
        pass


def test_every_transaction_of_a_cancel_ends_a_bounded_part(database: Engine) -> None:
    id = post(database, *["x"] * 3500)
    transact(database, verbs.cancel, id)
    assert count(database, "results", id) == 1000
    assert claim(database) == []
    row = job(database, id)
    assert (row.state, row.cancelled, row.n_running) == ("cancelling", 1000, 0)
    for ended in (2000, 3000, 3500):
        with database.begin() as tx:
            assert verbs.unended_cancelled(tx) == [id]
            assert verbs.end_cancelled(tx, id)
        assert count(database, "results", id) == ended
    with database.begin() as tx:
        assert verbs.unended_cancelled(tx) == []
        assert verbs.end_cancelled(tx, id) == 0
    assert (job(database, id).state, job(database, id).cancelled) == ("cancelled", 3500)


def test_an_impatient_cancel_is_finished_by_whoever_finds_it(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.usecases.cancel._END_FOR_S", 0.0)
    id = post(database, *["x"] * 2500)
    cancel(database, id)
    assert job(database, id).state == "cancelling"
    end_cancelled(database)
    assert job(database, id).state == "cancelled"


def test_cancel_ends_even_a_large_job(database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.usecases.cancel._END_FOR_S", PATIENCE_S)
    id = post(database, *["x"] * 3500)
    settle(database, claim(database))
    cancel(database, id)
    row = job(database, id)
    assert (row.state, row.succeeded, row.cancelled) == ("cancelled", 1000, 2500)


def test_a_cancelled_job_without_workers_ends_with_its_leases_in_parts(database: Engine) -> None:
    id = post(database, *["x"] * 3000)
    for _ in range(3):
        claim(database)
    cancel(database, id)
    assert transact(database, verbs.unended_cancelled) == []
    lapse(database)
    transact(database, reap.reap, 0.0)
    assert count(database, "results", id) == 1000
    assert claim(database) == []
    end_cancelled(database)
    assert (job(database, id).state, job(database, id).cancelled) == ("cancelled", 3000)


def test_expiry_takes_part_after_part_and_a_claim_between_does_no_harm(database: Engine) -> None:
    id = post(database, *["x"] * 3500, expires_in_s=0.001)
    lost = claim(database)
    transact(database, verbs.expire, id)
    assert count(database, "results", id) == 1000
    assert settle(database, lost) == 0
    execute(database, "UPDATE slices SET state = 'ready' WHERE state = 'held'")
    late = claim(database)
    assert settle(database, late) == 1
    while transact(database, store.end_expired):
        pass
    row = job(database, id)
    assert (row.state, row.succeeded, row.expired) == ("expired", 1000, 2500)


def test_a_job_with_expired_items_is_expired_whoever_writes_the_last(database: Engine) -> None:
    id = post(database, *["x"] * 2000, expires_in_s=0.001)
    transact(database, verbs.expire, id)
    execute(database, "UPDATE slices SET state = 'ready' WHERE state = 'held'")
    assert settle(database, claim(database)) == 1
    row = job(database, id)
    assert (row.state, row.succeeded, row.expired) == ("expired", 1000, 1000)


def test_what_is_left_of_a_cancelled_job_at_its_expiry_is_cancelled(database: Engine) -> None:
    id = post(database, "x", expires_in_s=0.001)
    claim(database)
    cancel(database, id)
    transact(database, verbs.expire, id)
    row = job(database, id)
    assert (row.state, row.cancelled, row.expired) == ("cancelled", 1, 0)


def test_verbs_whose_work_grows_with_the_job_have_no_statement_timeout(database: Engine) -> None:
    id = post(database, "x")
    cancel(database, id)
    for verb in (verbs.retry, verbs.cancel, verbs.delete):
        with database.begin() as tx:
            verb(tx, id)
            limited = tx.scalar(text("SHOW statement_timeout")) != "0"
        assert limited == (verb is verbs.cancel)


def test_retry_forgets_the_attempts_of_what_it_revives_and_no_others(database: Engine) -> None:
    id = post(database, *["x"] * 2000)
    settle(database, claim(database))
    attempt = """INSERT INTO attempts (job_id, tenant_id, seq, n, error, due_at)
                 VALUES (:id, 'default', :seq, 1, '{}', now())"""
    for seq in (5, 1500):
        execute(database, attempt, {"id": id, "seq": seq})
    cancel(database, id)
    transact(database, verbs.retry, id)
    assert scalars(database, "SELECT seq FROM attempts") == [5]
