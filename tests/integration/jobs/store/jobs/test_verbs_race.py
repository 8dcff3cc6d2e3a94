"""All verbs and finishers at once: nobody deadlocks, every job ends, and the counts are right."""

import random
import threading
from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from jobs.errors import Conflict, NotFound
from jobs.settings import Settings
from jobs.store import db
from jobs.store.db import Tx
from jobs.store.jobs import deletion, verbs
from jobs.store.queue import finish, reap
from tests.support.stores.store import claim, post, settle
from tests.support.stores.transactions import scalars, transact
from tests.support.wait import eventually
from workers.keeper import keeper

ROUNDS = 60

# Invariants 1 and 6 of a job that has ended.
BROKEN = text("""
    SELECT j.id FROM jobs j
    LEFT JOIN LATERAL (SELECT count(*) AS n, count(*) FILTER (WHERE outcome = 'succeeded') AS good,
                              min(seq) AS first, max(seq) AS last
                       FROM results WHERE job_id = j.id) AS r ON true
    WHERE j.finished_at IS NULL OR r.n <> j.total OR r.first <> 0 OR r.last <> j.total - 1
       OR r.good <> j.n_succeeded
       OR r.n <> j.n_succeeded + j.n_failed + j.n_cancelled + j.n_expired
""")
# What a deleted job left behind.
ORPHANS = text("""
    SELECT job_id FROM (
        SELECT job_id FROM slices UNION SELECT job_id FROM items UNION SELECT job_id FROM results
        UNION SELECT job_id FROM results_archive UNION SELECT job_id FROM deletions
    ) AS found
    WHERE job_id NOT IN (SELECT id FROM jobs)
""")


def expire(tx: Tx, job: UUID) -> None:
    """Its time is up; the keepers find out."""
    tx.execute(text("UPDATE jobs SET expires_at = now() WHERE id = :job"), {"job": job})


VERBS = (verbs.cancel, verbs.pause, verbs.resume, verbs.retry, expire, verbs.delete)
WEIGHTS = (5, 5, 5, 5, 2, 1)


def test_verbs_and_finishers_at_once_neither_deadlock_nor_lose(
    database: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "MOST_ITEMS", 1000)
    pool = db.connect(database_url, pool_size=16)
    jobs: list[UUID] = [post(pool, *["x"] * 2500) for _ in range(4)]
    errors: list[OperationalError] = []
    over, verbs_over = threading.Event(), threading.Event()

    def use_verbs(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(ROUNDS):
            [verb] = dice.choices(VERBS, WEIGHTS)
            attempt(lambda: _verb(pool, verb, dice.choice(jobs)))  # noqa: B023
            if len(_alive(pool)) < len(jobs) and dice.random() < 0.5:
                jobs[dice.randrange(len(jobs))] = post(pool, *["x"] * 2500)

    def until(end: threading.Event, act: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            while not end.is_set():
                attempt(act)

        return run

    def attempt(act: Callable[[], object]) -> None:
        try:
            act()
        except (Conflict, NotFound):
            pass
        except OperationalError as error:
            errors.append(error)

    askers = [threading.Thread(target=use_verbs, args=(seed,)) for seed in range(4)]
    others = [
        threading.Thread(target=until(end, act))
        for end, act in (
            # What one that failed had claimed is free again long before the wait below ends.
            *[(over, lambda: settle(pool, claim(pool, lease_s=5)))] * 3,
            # A worker that dies, while there are verbs: after them all that is claimed ends.
            (verbs_over, lambda: claim(pool, lease_s=0)),
            *[(over, lambda: _keep(pool))] * 2,
        )
    ]
    for thread in (*askers, *others):
        thread.start()
    for thread in askers:
        thread.join()
    verbs_over.set()
    for job in _alive(pool):
        _verb(pool, verbs.resume, job)
    try:
        eventually(lambda: errors or not _found(database, BROKEN))
        eventually(lambda: errors or not _found(database, ORPHANS))
    finally:
        over.set()
        for thread in others:
            thread.join()
        pool.dispose()
    assert errors == []
    assert _found(database, BROKEN) + _found(database, ORPHANS) == []


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


def _found(database: Engine, query: object) -> list[UUID]:
    with database.connect() as tx:
        return list(tx.scalars(query))  # type: ignore[call-overload]
