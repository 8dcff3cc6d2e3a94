"""Small jobs of several requests in one transaction, as the api stores them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from jobs.errors import IdempotencyKeyInFlight, IdempotencyKeyReused, SpendCap
from jobs.identity import Limit
from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.store import db
from jobs.store.jobs import idempotency
from jobs.store.jobs.idempotency import StoredResponse
from jobs.store.jobs.read import JobRow
from jobs.store.notifier import WorkNotifier
from jobs.store.tenants import tenants
from jobs.usecases import submit_together as module
from jobs.usecases.submit import Order, Submission, prepare
from jobs.usecases.submit_together import Outcome, fits, store_together
from jobs.views.jobs import job_json
from tests.support.stores.store import count
from tests.support.stores.transactions import scalar, scalars, transact


@pytest.fixture
def notifier(database_url: str) -> Iterator[WorkNotifier]:
    with closing(WorkNotifier(database_url)) as made:
        yield made


Store = Callable[..., list[Outcome]]


def new(tenant: str = "a", *items: object, **more: Any) -> Submission:
    return prepare(SAMPLES, tenant, Order("echo"), array=items or ["x"], **more)


@pytest.fixture
def store(api: Engine, notifier: WorkNotifier) -> Store:
    """Stores jobs in one transaction."""
    return lambda *jobs: store_together(api, jobs, notifier)


def ids(outcomes: list[Outcome]) -> list[object]:
    return [outcome.id if isinstance(outcome, JobRow) else outcome for outcome in outcomes]


def test_jobs_of_several_tenants_share_one_transaction(database: Engine, store: Store) -> None:
    jobs = [new("b", "x", "y"), new("a"), new("b", {"custom_id": "c", "input": "\t\\z"})]
    assert ids(store(*jobs)) == [each.job.id for each in jobs]
    for table in ("jobs", "items", "slices"):
        assert scalar(database, f"SELECT count(DISTINCT xmin::text) FROM {table}") == 1
    for table, columns, rows in (
        ("jobs", "total, custom_ids", ["a1f", "b1t", "b2f"]),
        ("items", "seq, input", ['a0"x"', r'b0"\t\\z"', 'b0"x"', 'b1"y"']),
        ("slices", "stop, model, epoch", ["a1echo0", "b1echo0", "b2echo0"]),
    ):
        assert (
            sorted(scalars(database, f"SELECT concat(tenant_id, {columns}) FROM {table}")) == rows
        )


def test_an_error_of_one_job_leaves_the_others_alone(database: Engine, store: Store) -> None:
    good, bad, other = new("a"), new("a"), new("b")
    bad = Submission(replace(bad.job, priority=1000), bad.intake, None, bad.answer, ())
    first, refused, last = store(good, bad, other)
    assert isinstance(refused, psycopg.errors.CheckViolation)
    assert ids([first, last]) == [good.job.id, other.job.id]
    assert count(database, "jobs") == count(database, "items") == 2


def test_an_idempotency_key_has_its_own_outcome_in_a_group(database: Engine, store: Store) -> None:
    claims = [Claim("a", f"key {n}", b"f" * 32) for n in range(3)]
    other = replace(claims[0], fingerprint=b"g" * 32)
    [first] = store(new(claim=claims[0]))
    assert isinstance(first, JobRow)
    with database.begin() as tx:
        idempotency.lock(tx, claims[2])
        again, *found = store(*(new(claim=it) for it in (claims[0], other, *claims[1:], None)))
    assert again == StoredResponse(first.id, job_json(first).decode())
    assert [type(one) for one in found] == [
        IdempotencyKeyReused,
        JobRow,
        IdempotencyKeyInFlight,
        JobRow,
    ]
    assert count(database, "jobs") == 3
    assert count(database, "idempotency_keys") == 2


def test_a_key_twice_makes_one_job(database: Engine, store: Store) -> None:
    claim = Claim("a", "key", b"f" * 32)
    found = store(new(claim=claim), new(claim=claim))
    assert [type(one) for one in found] == [JobRow, IdempotencyKeyInFlight]
    assert count(database, "jobs") == 1


def test_a_tenant_at_its_hard_cap_is_refused_alone(database: Engine, store: Store) -> None:
    transact(database, tenants.put, "b", weight=1.0, soft_cap=None, hard_cap=0)
    found = store(new("a"), new("b"), new("c"))
    assert [type(one) for one in found] == [JobRow, SpendCap, JobRow]
    assert count(database, "jobs") == 2


def test_a_job_near_its_tenants_limits_is_stored_alone(api: Engine) -> None:
    with closing(new()) as free, closing(new(limits=[Limit(queued_items=1000)])) as bounded:
        assert fits(api, free)
        assert not fits(api, bounded)


def test_all_fail_while_the_database_is_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("", {}, Exception())

    monkeypatch.setattr(module, "insert_jobs", away)
    jobs = [new("a"), new("b")]
    assert [type(each) for each in store(*jobs)] == [OperationalError] * 2
    assert all(each.intake.rows.closed for each in jobs)


@pytest.fixture
def keeper(database_url: str) -> Iterator["psycopg.Connection"]:
    """Listens for work."""
    with psycopg.connect(db.plain_url(database_url), autocommit=True) as connection:
        connection.execute(f"LISTEN {db.WORK_CHANNEL}")
        yield connection


def test_keepers_hear_of_commits(keeper: "psycopg.Connection", store: Store) -> None:
    store(new("a"), new("b"))
    [heard] = keeper.notifies(timeout=60, stop_after=1)
    assert heard.channel == db.WORK_CHANNEL


def test_a_notifier_survives_its_connection(
    keeper: "psycopg.Connection", notifier: WorkNotifier
) -> None:
    for _ in range(2):
        notifier.notify()
        assert list(keeper.notifies(timeout=60, stop_after=1))
        keeper.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'NOTIFY%'"
        )


def test_many_commits_notify_once(notifier: WorkNotifier, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, may_go_on, began = list[int](), threading.Event(), threading.Event()

    def send(_: WorkNotifier) -> None:
        began.set()
        may_go_on.wait()
        sent.append(1)

    monkeypatch.setattr(WorkNotifier, "_send", send)
    notifier.notify()
    began.wait()
    for _ in range(100):
        notifier.notify()
    may_go_on.set()
    notifier.close()
    assert len(sent) == 2
