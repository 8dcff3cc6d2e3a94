"""Verbs on jobs that are larger than what one transaction ends."""

import pytest
from sqlalchemy import Engine, text

from jobs.store.jobs import verbs
from jobs.store.queue import finish, reap
from jobs.usecases.cancel import cancel
from tests.support.stores.store import claim, count, job, lapse, post, settle
from tests.support.stores.transactions import execute, scalars, transact


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of echo is all that a transaction ends."""
    monkeypatch.setattr(finish, "MOST_ITEMS", 1000)


def end_cancelled(database: Engine) -> None:
    with database.begin() as tx:
        while found := verbs.unended_cancelled(tx):
            verbs.end_cancelled(tx, found[0])


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


def test_a_large_job_is_terminal_when_cancel_returns(database: Engine) -> None:
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
    with database.begin() as tx:
        while due := verbs.expired(tx):
            verbs.expire(tx, due[0])
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
