"""Every invariant holds on what the store does, and a database broken on purpose is caught."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.models.pricing import Price
from jobs.store import db
from jobs.store.jobs import verbs
from jobs.store.monitoring import invariants
from jobs.store.queue import claim, settle
from jobs.usecases.submit import Order, submit_source
from tests.support.cases import each
from tests.support.command_line import run_millrace
from tests.support.stores.store import ECHO, count, post, results
from tests.support.stores.transactions import execute, transact

# Breaks one thing of a database that has a job of each kind, with three items each.
BREAKS = {
    "results_complete": [
        "DELETE FROM results WHERE job_id = :done AND seq = 1",
        "UPDATE {leaf} SET seq = 3 WHERE job_id = :done AND seq = 2",
        "INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units) "
        "VALUES (:queued, 'default', -1, 'failed', 1, 0)",
    ],
    "slices_cover": [
        "DELETE FROM slices WHERE job_id = :queued",
        "UPDATE slices SET start = 1 WHERE job_id = :queued",
        "UPDATE slices SET stop = 2 WHERE job_id = :leased",
        "UPDATE jobs SET total = 4 WHERE id = :queued",
    ],
    "results_frozen": [
        "DROP TRIGGER results_frozen ON results",
        "ALTER TABLE results DISABLE TRIGGER results_frozen",
    ],
    "archive": [
        "UPDATE results_archive SET generation = 2",
        "UPDATE results_archive SET outcome = 'succeeded'",
        "INSERT INTO results_archive SELECT * FROM results_archive",
    ],
    "no_orphans": [
        "DELETE FROM jobs WHERE id = :queued",
        "INSERT INTO attempts (job_id, tenant_id, seq, n, error, due_at) "
        "VALUES (gen_random_uuid(), 'default', 0, 1, '', now())",
        "INSERT INTO checkpoints VALUES (gen_random_uuid(), 0, 0, 0, 'default', '{{1}}', 'a')",
    ],
    "items_complete": [
        "DELETE FROM items WHERE job_id = :queued AND seq = 0",
        "DELETE FROM items WHERE job_id = :done",
        "UPDATE items SET seq = 7 WHERE job_id = :queued AND seq = 2",
    ],
    "leases": [
        "UPDATE slices SET lease_owner = NULL WHERE job_id = :leased",
        "UPDATE slices SET lease_until = NULL WHERE job_id = :leased",
        "UPDATE slices SET epoch = 0 WHERE job_id = :leased",
        "UPDATE slices SET lease_owner = 1 WHERE job_id = :done",
        "UPDATE slices SET lease_until = now() WHERE job_id = :queued",
    ],
    "checkpoints": ["INSERT INTO checkpoints VALUES (:done, 1, 0, 0, 'default', '{{1}}', 'a')"],
    "done_is_whole": ["UPDATE slices SET state = 'done' WHERE job_id = :queued"],
    "delivered_by_key": ["ALTER TABLE results DROP CONSTRAINT results_pkey"],
    "slice_counts": [
        "UPDATE slices SET n_failed = 1 WHERE job_id = :queued",
        "UPDATE slices SET n_succeeded = 2, n_expired = 1 WHERE job_id = :done",
    ],
    "job_counts": ["UPDATE jobs SET n_cancelled = 1 WHERE id = :done"],
    "ended": [
        "UPDATE jobs SET finished_at = NULL WHERE id = :done",
        "UPDATE jobs SET finished_at = now() WHERE id = :queued",
        "UPDATE slices SET state = 'held' WHERE job_id = :done",
        "UPDATE jobs SET n_succeeded = 2, n_cancelled = 1 WHERE id = :done",
    ],
    "transfers": [
        "DELETE FROM transfers",
        "UPDATE transfers SET generation = 2",
        "UPDATE transfers SET kind = 'export'",
        "UPDATE jobs SET target = '{}' WHERE id = :done",
        "INSERT INTO transfers (job_id, tenant_id, kind, generation) "
        "VALUES (:queued, 'default', 'export', 1)",
    ],
    "tenants": [
        "UPDATE transfers SET tenant_id = 'other'",
        "UPDATE slices SET tenant_id = 'other' WHERE job_id = :done",
        "UPDATE items SET tenant_id = 'other' WHERE job_id = :done AND seq = 1",
        "UPDATE {leaf} SET tenant_id = 'other' WHERE job_id = :done AND seq = 1",
        "UPDATE results_archive SET tenant_id = 'other'",
        "INSERT INTO webhook_deliveries (tenant_id, job_id, generation, url, type, about) "
        "VALUES ('other', :done, 1, '', '', '{}')",
    ],
    "versions": [
        "UPDATE slices SET version = '2' WHERE job_id = :queued",
        "UPDATE slices SET model = 'other' WHERE job_id = :done",
        "WITH launched AS ("
        "INSERT INTO launches (id, incarnation, model, version, bucket, reason, items, calls, "
        "units, padded_units, predicted_ms, engine_ms, started_at) "
        "VALUES (7, 1, 'echo', '2', 0, '', 1, 0, 1, 1, 1, 1, now()) RETURNING id) "
        "UPDATE {leaf} SET launch_id = launched.id FROM launched WHERE job_id = :done",
    ],
    "ledger": [
        "TRUNCATE usage",
        "INSERT INTO usage SELECT * FROM usage WHERE job_id = :done",
        "UPDATE {leaf} SET units = 2 WHERE job_id = :done AND seq = 2",
        "UPDATE results_archive SET device_us = device_us + 1 WHERE seq = 0",
        "UPDATE {leaf} SET output_tokens = 1 WHERE job_id = :done AND seq = 2",
    ],
    "ledger_names": [
        "UPDATE jobs SET class = 'bulk' WHERE id = :done",
        "INSERT INTO usage (tenant_id, kind, job_id, start, model, version, class, succeeded, "
        "failed, units, device_us, amount) "
        "VALUES ('default', 'items', :done, 1, 'echo', '1', 'standard', 0, 0, 0, 0, 0)",
    ],
    "ledger_frozen": [
        "DROP TRIGGER usage_frozen ON usage",
        "ALTER TABLE usage DISABLE TRIGGER usage_frozen",
    ],
    "spend": [
        "DELETE FROM spend",
        "UPDATE spend SET amount = amount + 1",
        "INSERT INTO spend VALUES ('default', '2026-01-01', 1)",
    ],
}


def broken(database: Engine) -> set[str]:
    with invariants.snapshot(database) as tx:
        return {i.name for i in invariants.INVARIANTS if invariants.violations(tx, i)}


@pytest.fixture
def jobs(database: Engine) -> dict[str, UUID]:
    """A job that ended, one that runs, one that waits, one that was retried, and one that is still
    to be read."""
    found = {name: post(database, *"xxx") for name in ("done", "retried", "leased", "queued")}
    with database.begin() as tx:
        leases = {lease.job_id: lease for lease in claim.claim(tx, 1, {ECHO: 9}, lease_s=60)}
        done, retried = leases[found["done"]], leases[found["retried"]]
        rows = [*results(done), *results(retried, outcome="failed")]
        settle.settle(tx, [done, retried], rows, prices={ECHO.key: Price(per_item=Decimal(1))})
        verbs.retry(tx, found["retried"])
    source = {"url": "s3://here/in.jsonl"}
    found["unread"] = submit_source(database, SAMPLES, "default", Order("echo"), source).id
    return found


def _leaf(tx: db.Tx) -> str:
    """The partition that holds the results: an update of it passes by the trigger."""
    leaf: str = tx.scalars(text("SELECT CAST(tableoid AS regclass)::text FROM results")).first()
    return leaf


def test_all_invariants_hold_on_the_stores_work(database: Engine, jobs: dict[str, UUID]) -> None:
    assert broken(database) == set()


def test_every_invariant_of_the_design_is_asked() -> None:
    assert {i.number for i in invariants.INVARIANTS} == set(range(1, 11))
    assert {i.name for i in invariants.INVARIANTS} == BREAKS.keys() | {"never_updated"}


def test_a_database_broken_on_purpose_is_caught(database: Engine, jobs: dict[str, UUID]) -> None:
    asked = {invariant.name: invariant for invariant in invariants.INVARIANTS}
    breaks = [(name, statement) for name, found in BREAKS.items() for statement in found]
    for (name, statement), case in each(breaks):
        with case, database.connect() as tx:  # rolled back at its end
            query = text(statement.replace("{leaf}", _leaf(tx)))
            tx.execute(query, {key: id for key, id in jobs.items() if f":{key}" in statement})
            assert invariants.violations(tx, asked[name])


def test_an_updated_result_is_caught_where_the_trigger_did_not_stop_it(
    database: Engine, jobs: dict[str, UUID]
) -> None:
    with database.begin() as tx:
        tx.execute(text(f"UPDATE {_leaf(tx)} SET output = '0'"))
        tx.execute(text("SELECT pg_stat_force_next_flush()"))
    assert broken(database) == {"never_updated"}


def test_rows_of_a_deleted_job_are_no_orphans_and_what_was_pruned_is_not_missed(
    database: Engine, jobs: dict[str, UUID]
) -> None:
    transact(database, verbs.delete, jobs["done"])
    assert count(database, "items", jobs["done"])
    assert broken(database) == set()
    execute(database, "UPDATE jobs SET items_pruned = true, results_pruned = true")
    for table in ("items", "results"):
        execute(database, f"DELETE FROM {table}")
    assert broken(database) == set()


def test_they_hold_in_every_snapshot_while_it_works(database: Engine) -> None:
    over = threading.Event()

    def work(owner: int) -> None:
        while not over.is_set():
            leases = transact(database, claim.claim, owner, {ECHO: 50}, lease_s=60)
            rows = [row for lease in leases for row in results(lease)]
            transact(database, settle.settle, leases, rows)

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, owner) for owner in (1, 2)]
        try:
            for _ in range(10):
                job = post(database, *"xxx")
                with database.begin() as tx:
                    verbs.cancel(tx, job)
                    verbs.retry(tx, job)
                assert broken(database) == set()
        finally:
            over.set()
    assert [one.result() for one in working] == [None, None]


def test_the_command_tells_what_holds_and_fails_where_something_is_broken(
    database: Engine, database_url: str, jobs: dict[str, UUID]
) -> None:
    def check(*options: str, status: int = 1) -> str:
        its = {"MILLRACE_DATABASE_URL": database_url}
        return run_millrace("check", "--invariants", *options, status=status, **its).stdout

    assert "BROKEN" not in check(status=0)
    execute(database, "UPDATE slices SET lease_owner = 7 WHERE job_id = :done", jobs)
    assert ids.show("job", jobs["done"]) in check()
    found = json.loads(check("--json"))
    assert not found["holds"]
    (broken_one,) = (row for row in found["invariants"] if not row["holds"])
    assert (broken_one["invariant"], broken_one["name"]) == (4, "leases")
    assert broken_one["violations"][0]["job"] == ids.show("job", jobs["done"])


def test_jobs_older_than_the_ledger_are_no_breach(database: Engine, jobs: dict[str, UUID]) -> None:
    execute(database, "TRUNCATE usage, spend")
    assert broken(database) == {"ledger"}
    execute(database, "UPDATE jobs SET billed = false")
    assert broken(database) == set()
