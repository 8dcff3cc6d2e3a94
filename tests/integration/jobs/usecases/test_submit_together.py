"""Small jobs of several requests in one transaction, as the api stores them."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text
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
from tests.support.stores.transactions import transact


@pytest.fixture
def api(database_url: str) -> Iterator[Engine]:
    """As an api process connects: row-level security applies."""
    engine = db.connect(database_url, pool_size=2, role=db.API)
    yield engine
    engine.dispose()


@pytest.fixture
def notifier(database_url: str) -> Iterator[WorkNotifier]:
    made = WorkNotifier(database_url)
    yield made
    made.close()


def new(tenant: str = "a", *items: object, **more: Any) -> Submission:
    return prepare(SAMPLES, tenant, Order("echo"), array=items or ["x"], **more)


def scalar(database: Engine, query: str) -> Any:
    with database.connect() as tx:
        return tx.scalar(text(query))


def ids(outcomes: list[Outcome]) -> list[object]:
    return [outcome.id if isinstance(outcome, JobRow) else outcome for outcome in outcomes]


def test_jobs_of_several_tenants_share_one_transaction(
    database: Engine, api: Engine, notifier: WorkNotifier
) -> None:
    jobs = [new("b", "x", "y"), new("a"), new("b", {"custom_id": "c", "input": "\t\\z"})]
    assert ids(store_together(api, jobs, notifier)) == [each.job.id for each in jobs]
    for table in ("jobs", "items", "slices"):
        assert scalar(database, f"SELECT count(DISTINCT xmin::text) FROM {table}") == 1
    stored = "SELECT array_agg(concat(tenant_id, total, custom_ids)) FROM jobs"
    assert sorted(scalar(database, stored)) == ["a1f", "b1t", "b2f"]
    items = "SELECT array_agg(concat(tenant_id, seq, input)) FROM items"
    assert sorted(scalar(database, items)) == ['a0"x"', r'b0"\t\\z"', 'b0"x"', 'b1"y"']
    slices = "SELECT array_agg(concat(tenant_id, stop, model, epoch)) FROM slices"
    assert sorted(scalar(database, slices)) == ["a1echo0", "b1echo0", "b2echo0"]


def test_an_error_of_one_job_leaves_the_others_alone(
    database: Engine, api: Engine, notifier: WorkNotifier
) -> None:
    good, bad, other = new("a"), new("a"), new("b")
    bad = Submission(replace(bad.job, priority=1000), bad.intake, None, bad.answer, ())
    first, refused, last = store_together(api, [good, bad, other], notifier)
    assert isinstance(refused, psycopg.errors.CheckViolation)
    assert ids([first, last]) == [good.job.id, other.job.id]
    assert scalar(database, "SELECT count(*) FROM jobs") == 2
    assert scalar(database, "SELECT count(*) FROM items") == 2


def test_an_idempotency_key_has_its_own_outcome_in_a_group(
    database: Engine, api: Engine, notifier: WorkNotifier
) -> None:
    claims = [Claim("a", f"key {n}", b"f" * 32) for n in range(3)]
    [first] = store_together(api, [new(claim=claims[0])], notifier)
    assert isinstance(first, JobRow)
    with database.begin() as tx:
        idempotency.lock(tx, claims[2])
        again, reused, fresh, in_flight, without = store_together(
            api,
            [
                new(claim=claims[0]),
                new(claim=replace(claims[0], fingerprint=b"g" * 32)),
                new(claim=claims[1]),
                new(claim=claims[2]),
                new(),
            ],
            notifier,
        )
    assert again == StoredResponse(first.id, job_json(first).decode())
    assert isinstance(reused, IdempotencyKeyReused)
    assert isinstance(in_flight, IdempotencyKeyInFlight)
    assert isinstance(fresh, JobRow)
    assert isinstance(without, JobRow)
    assert scalar(database, "SELECT count(*) FROM jobs") == 3
    assert scalar(database, "SELECT count(*) FROM idempotency_keys") == 2


def test_a_key_twice_makes_one_job(database: Engine, api: Engine, notifier: WorkNotifier) -> None:
    claim = Claim("a", "key", b"f" * 32)
    stored, refused = store_together(api, [new(claim=claim), new(claim=claim)], notifier)
    assert isinstance(stored, JobRow)
    assert isinstance(refused, IdempotencyKeyInFlight)
    assert scalar(database, "SELECT count(*) FROM jobs") == 1


def test_a_tenant_at_its_hard_cap_is_refused_alone(
    database: Engine, api: Engine, notifier: WorkNotifier
) -> None:
    transact(database, tenants.put, "b", weight=1.0, soft_cap=None, hard_cap=0)
    first, refused, last = store_together(api, [new("a"), new("b"), new("c")], notifier)
    assert isinstance(first, JobRow)
    assert isinstance(last, JobRow)
    assert isinstance(refused, SpendCap)
    assert scalar(database, "SELECT count(*) FROM jobs") == 2


def test_a_job_near_its_tenants_limits_is_stored_alone(api: Engine) -> None:
    with closing(new()) as free, closing(new(limits=[Limit(queued_items=1000)])) as bounded:
        assert fits(api, free)
        assert not fits(api, bounded)


def test_all_fail_while_the_database_is_away(
    api: Engine, notifier: WorkNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("", {}, Exception())

    monkeypatch.setattr(module, "insert_jobs", away)
    jobs = [new("a"), new("b")]
    assert [type(each) for each in store_together(api, jobs, notifier)] == [OperationalError] * 2
    assert all(each.intake.rows.closed for each in jobs)


def test_keepers_hear_of_commits(database_url: str, api: Engine, notifier: WorkNotifier) -> None:
    with psycopg.connect(db.plain_url(database_url), autocommit=True) as keeper:
        keeper.execute(f"LISTEN {db.WORK_CHANNEL}")
        store_together(api, [new("a"), new("b")], notifier)
        [heard] = keeper.notifies(timeout=60, stop_after=1)
        assert heard.channel == db.WORK_CHANNEL


def test_a_notifier_survives_its_connection(database_url: str, notifier: WorkNotifier) -> None:
    with psycopg.connect(db.plain_url(database_url), autocommit=True) as keeper:
        keeper.execute(f"LISTEN {db.WORK_CHANNEL}")
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
