"""All verbs and finishers at once: nobody deadlocks, every job ends, and the counts are right."""

import random
import threading
from uuid import UUID

from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from jobs.registry import SAMPLES
from jobs.store import claims, db, settling, verbs
from jobs.store.settling import Result
from jobs.submit import Order, submit
from tests.wait import eventually

ECHO = SAMPLES.resolve("echo")
VERBS = (verbs.cancel, verbs.pause, verbs.resume, verbs.retry)
ROUNDS = 150

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


def test_verbs_and_finishers_at_once_neither_deadlock_nor_lose(
    database: Engine, database_url: str
) -> None:
    pool = db.connect(database_url, pool_size=12)
    jobs: list[UUID] = [
        submit(pool, SAMPLES, "default", Order("echo"), array=["x"] * 2500)["id"] for _ in range(4)
    ]
    errors: list[OperationalError] = []
    over = threading.Event()

    def use_verbs(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(ROUNDS):
            attempt(lambda: _verb(pool, dice.choice(VERBS), dice.choice(jobs)))

    def work(owner: int) -> None:
        while not over.is_set():
            attempt(lambda: _run_one_claim(pool, owner))

    def attempt(act: object) -> None:
        try:
            act()  # type: ignore[operator]
        except OperationalError as error:
            errors.append(error)

    askers = [threading.Thread(target=use_verbs, args=(seed,)) for seed in range(4)]
    owners = [threading.Thread(target=work, args=(owner,)) for owner in range(3)]
    for thread in (*askers, *owners):
        thread.start()
    for thread in askers:
        thread.join()
    for job in jobs:
        _verb(pool, verbs.resume, job)
    try:
        eventually(lambda: not _broken(database), timeout_s=60)
    finally:
        over.set()
        for thread in owners:
            thread.join()
        pool.dispose()
    assert errors == []
    assert _broken(database) == []


def _verb(pool: Engine, verb: object, job: UUID) -> None:
    with pool.begin() as tx:
        verb(tx, job)  # type: ignore[operator]


def _run_one_claim(pool: Engine, owner: int) -> None:
    with pool.begin() as tx:
        leases = claims.claim(tx, owner, {ECHO: 1000}, lease_s=60)
    with pool.begin() as tx:
        rows = [
            Result(leases[n].job_id, "default", seq, "succeeded", 1, None, None, value, None)
            for n, seq, value, *_ in claims.read_inputs(tx, leases)
        ]
    with pool.begin() as tx:
        settling.settle(tx, leases, rows)


def _broken(database: Engine) -> list[UUID]:
    with database.connect() as tx:
        return list(tx.scalars(BROKEN))
