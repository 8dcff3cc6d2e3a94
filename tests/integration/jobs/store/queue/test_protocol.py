"""The whole protocol under any interleaving: submit, claim, renew, record, settle, split, every
verb, the keeper's duties, with workers that crash before their commit, or right after it and before
they know of it. After every step the invariants hold, and in the end every job does end."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Engine

from jobs.models.builtin_models import SAMPLES
from jobs.models.pricing import Price
from jobs.models.registry import Registry
from jobs.states import TERMINAL
from jobs.store.billing import spend
from jobs.store.db import Tx
from jobs.store.jobs import verbs
from jobs.store.queue import claim as claims
from jobs.store.queue import finish, split, workers
from jobs.store.queue import reap as reaping
from jobs.store.queue import settle as settling
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from jobs.store.queue.workers import Death
from jobs.usecases.submit import Order, submit
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import end_cancelled, end_expired
from tests.support.stores.transactions import execute, fetch, scalars, transact

ECHO = SAMPLES.resolve("echo")
SLICED = Registry([replace(ECHO, limits=replace(ECHO.limits, slice_items=3))])
LEASE_S = 600.0
TABLES = (
    "jobs, job_labels, slices, items, results, results_archive, attempts, workers, worker_models, "
    "usage, spend"
)
PRICES = {ECHO.key: Price(Decimal("0.1"), Decimal(7), Decimal("0.3"))}


class Crash(Exception):
    """The process is gone before its transaction committed."""


@dataclass
class Worker:
    incarnation: int
    leases: list[Lease] = field(default_factory=list)


class Protocol(RuleBasedStateMachine):
    database: ClassVar[Engine]

    def __init__(self) -> None:
        super().__init__()
        execute(self.database, f"TRUNCATE {TABLES}")
        self.acknowledged: set[UUID] = set()
        self.seen: dict[tuple[UUID, int, int], str] = {}
        self.workers = [self._register() for _ in range(3)]

    # -- clients

    @rule(count=st.integers(1, 9))
    def submit(self, count: int) -> None:
        row = submit(self.database, SLICED, "default", Order("echo"), array=["x"] * count)
        self.acknowledged.add(row.id)

    @precondition(lambda self: self.acknowledged)
    @rule(
        data=st.data(),
        verb=st.sampled_from([verbs.cancel, verbs.pause, verbs.resume, verbs.retry]),
        crash=st.booleans(),
    )
    def verb(self, data: Any, verb: Callable[[Tx, UUID], str], crash: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.acknowledged)))
        self._transaction(lambda tx: verb(tx, job), crash)

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data())
    def time_is_up(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.acknowledged)))
        query = "UPDATE jobs SET expires_at = now() - interval '1 s' WHERE id = :job"
        execute(self.database, query, {"job": job})

    # -- workers

    @rule(
        n=st.integers(0, 2),
        room=st.integers(1, 6),
        most=st.sampled_from([1, 2, 9]),
        end=st.sampled_from(["", "before", "after"]),
    )
    def claim(self, n: int, room: int, most: int, end: str) -> None:
        """Slices, of which the part is claimed that runs for long enough."""
        worker = self.workers[n]

        def act(tx: Tx) -> list[Lease]:
            if any(lease.suspect for lease in worker.leases):
                return []
            found = claims.claim(tx, worker.incarnation, {ECHO: room}, LEASE_S)
            found = [split.cut(tx, lease, most, "default") for lease in found]
            if not found and not worker.leases:
                found = claims.claim_suspect(tx, worker.incarnation, ECHO, LEASE_S)
            return found

        worker.leases += self._transaction(act, end == "before") or []
        if end:
            self._dies(n, "crashed")

    @rule(n=st.integers(0, 2))
    def renew(self, n: int) -> None:
        worker = self.workers[n]
        with self.database.begin() as tx:
            workers.heartbeat(tx, worker.incarnation, "ready")
            held = claims.renew(tx, worker.leases, LEASE_S)
        worker.leases = [lease for lease in worker.leases if (lease.job_id, lease.start) in held]

    @rule(
        n=st.integers(0, 2),
        data=st.data(),
        end=st.sampled_from(["", "", "before", "after"]),
        forgets=st.booleans(),
    )
    def settle(self, n: int, data: Any, end: str, forgets: bool) -> None:
        """Some slices, with what became of some of their items. A worker that `forgets` offers
        the same again: its answer from the database was lost. What is recorded already is offered
        once more in any case."""
        worker = self.workers[n]
        finished = [lease for lease in worker.leases if data.draw(st.booleans())]

        def act(tx: Tx) -> int:
            return settling.settle(tx, finished, *_ended(tx, finished, data), PRICES)

        self._transaction(act, end == "before")
        if not forgets:
            worker.leases = [lease for lease in worker.leases if lease not in finished]
        if end:
            self._dies(n, "crashed")

    @rule(n=st.integers(0, 2), data=st.data(), end=st.sampled_from(["", "", "before", "after"]))
    def record(self, n: int, data: Any, end: str) -> None:
        """Some slices go on, and what ended of them is recorded."""
        running = [lease for lease in self.workers[n].leases if data.draw(st.booleans())]
        self._transaction(
            lambda tx: settling.record(tx, running, *_ended(tx, running, data), PRICES),
            end == "before",
        )
        if end:
            self._dies(n, "crashed")

    @rule(n=st.integers(0, 2), how=st.sampled_from(["killed", "crashed", "hung"]))
    def die(self, n: int, how: Death) -> None:
        self._dies(n, how)

    @rule(n=st.integers(0, 2))
    def fall_silent(self, n: int) -> None:
        """A zombie: its leases run out, and it goes on with them later."""
        for change in (
            "workers SET heartbeat_at = now() - interval '1 h' WHERE incarnation = :me",
            "slices SET lease_until = now() - interval '1 s' WHERE lease_owner = :me",
        ):
            execute(self.database, f"UPDATE {change}", {"me": self.workers[n].incarnation})

    # -- the keeper

    @rule(crash=st.booleans())
    def reap(self, crash: bool) -> None:
        self._transaction(lambda tx: reaping.reap(tx, 0.0), crash)

    @rule(
        duty=st.sampled_from([end_expired, end_cancelled, lambda tx: spend.compact(tx, most=1)]),
        crash=st.booleans(),
    )
    def keep(self, duty: Callable[[Tx], int], crash: bool) -> None:
        """Expires, goes on to cancel, or sums up."""
        self._transaction(duty, crash)

    @rule()
    def sweep(self) -> None:
        transact(self.database, finish.MissedJobs().close)

    @rule()
    def backoff_passes(self) -> None:
        execute(self.database, "UPDATE attempts SET due_at = now() WHERE due_at > now()")
        execute(self.database, "UPDATE slices SET not_before = now() WHERE not_before > now()")

    # -- what always holds

    @invariant()
    def every_invariant_holds(self) -> None:
        assert broken_invariants(self.database) == set()

    @invariant()
    def what_was_acknowledged_is_there_and_what_was_recorded_stays(self) -> None:
        query = """
            SELECT j.id, j.generation, r.seq, r.outcome || coalesce(r.output, '') ||
                   coalesce(r.error, '') || r.attempts
            FROM jobs j LEFT JOIN results r ON r.job_id = j.id
        """
        rows = fetch(self.database, query)
        assert {row[0] for row in rows} == self.acknowledged
        now = {(job, generation, seq): value for job, generation, seq, value in rows if value}
        generations = {row[0]: row[1] for row in rows}
        for key, value in self.seen.items():
            if generations[key[0]] == key[1]:
                assert now[key] == value
        self.seen |= now

    def teardown(self) -> None:
        """Whatever happened: paused jobs resume, one worker comes, and every job ends."""
        for n in range(3):
            self._dies(n, "killed")
        for job in self.acknowledged:
            self._transaction(lambda tx, job=job: verbs.resume(tx, job), False)  # type: ignore[misc]
        for _ in range(500):
            self.backoff_passes()
            self.reap(False)
            while self._transaction(end_expired, False) or self._transaction(end_cancelled, False):
                pass
            if not self._one_worker_works():
                break
        states = set(scalars(self.database, "SELECT state FROM jobs"))
        assert states <= TERMINAL
        self.every_invariant_holds()

    def _one_worker_works(self) -> bool:
        worker = self.workers[0]
        with self.database.begin() as tx:
            leases = claims.claim(tx, worker.incarnation, {ECHO: 1000}, LEASE_S)
            leases += claims.claim_suspect(tx, worker.incarnation, ECHO, LEASE_S)
        with self.database.begin() as tx:
            rows = claims.read_inputs(tx, leases) if leases else []
            results = [_result(leases[row[0]], row[1], row[4], "succeeded") for row in rows]
            settling.settle(tx, leases, results, prices=PRICES)
        return bool(leases)

    def _transaction(self, act: Callable[[Tx], Any], crash: bool) -> Any:
        with suppress(Crash), self.database.begin() as tx:
            done = act(tx)
            if crash:
                raise Crash
            return done

    def _dies(self, n: int, how: Death) -> None:
        transact(self.database, workers.report_death, self.workers[n].incarnation, how)
        self.workers[n] = self._register()

    def _register(self) -> Worker:
        return Worker(transact(self.database, workers.register, "w", "default", "cpu", ["echo@1"]))


def _ended(tx: Tx, leases: list[Lease], data: Any) -> tuple[list[Result], list[Attempt]]:
    """Some items ended, some failed and will be retried; what is recorded is offered again."""
    fates = st.sampled_from(["succeeded", "failed", "transient", "released"])
    rows = [
        (leases[index], seq, failures, data.draw(fates))
        for index, seq, _, _, failures in claims.read_inputs(tx, leases)
    ]
    results = [_result(*row) for row in rows if row[3] in ("succeeded", "failed")]
    attempts = [_attempt(*row) for row in rows if row[3] == "transient"]
    left = {(row[0].job_id, row[1]) for row in rows}
    again = [
        _result(lease, seq, None, "succeeded")
        for lease in leases
        for seq in range(lease.start, lease.stop)
        if (lease.job_id, seq) not in left
    ]
    return [*results, *again], attempts


def _result(lease: Lease, seq: int, failures: str | None, outcome: str) -> Result:
    n = 1 + (failures or "").count("code")
    error = '{"code":"engine_error"}' if outcome == "failed" else None
    output = None if error else '"x"'
    return Result(
        lease.job_id, "default", seq, "failed" if error else "succeeded", 1, 0.0, None, output,
        error, n, 100 + seq,
    )  # fmt: skip


def _attempt(lease: Lease, seq: int, failures: str | None, _: str) -> Attempt:
    n = 1 + (failures or "").count("code")
    return Attempt(lease.job_id, "default", seq, n, '{"code":"transient"}', None, 3600.0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("examples", [12, pytest.param(40, marks=pytest.mark.nightly)])
def test_any_interleaving_keeps_invariants_and_all_jobs_end(
    database: Engine, examples: int
) -> None:
    Protocol.database = database
    machine: Any = Protocol.TestCase
    checks = list(HealthCheck)
    machine.settings = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=checks
    )
    machine("runTest").runTest()
