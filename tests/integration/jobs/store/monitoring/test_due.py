"""The keeper's look for due work finds what its duties would do."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from psycopg import Connection
from sqlalchemy import Engine

from jobs.settings import Settings
from jobs.store import db
from jobs.store.monitoring import due
from tests.support.stores.store import post
from tests.support.stores.transactions import execute, transact
from tests.support.wait import PATIENCE_S
from workers.keeper.due_watcher import DueWatcher
from workers.keeper.keeper import Keeper, duties, lease_watch
from workers.keeper.service import Periodic

MAKE = {
    "reap": "UPDATE slices SET state = 'leased', lease_until = now() + interval '1 h'",
    "cancel": "UPDATE jobs SET state = 'cancelling'",
    "expire": "UPDATE jobs SET expires_at = now() - interval '1 s'",
    "erase rows": "INSERT INTO deletions (job_id, tenant_id, total) VALUES (:id, 't', 2)",
    "erase payloads": (
        "INSERT INTO deletions (job_id, tenant_id, total, erased) VALUES (:id, 't', 2, 2)"
    ),
    "erase tenants": "INSERT INTO tenants (tenant_id, erased_at) VALUES ('t', now())",
    "expire files": (
        "INSERT INTO files (id, tenant_id, purpose, filename, key, bytes, sha256, expires_at)"
        " VALUES (:id, 't', 'batch', 'f', 'k', 1, '', now())"
    ),
    "webhooks": (
        "INSERT INTO webhook_deliveries (tenant_id, url, type, about)"
        " VALUES ('t', 'https://example.com', 'job.completed', '{}')"
    ),
    "transfers": (
        "INSERT INTO transfers (job_id, kind, tenant_id, generation)"
        " VALUES (:id, 'import', 'default', 0)"
    ),
}


@pytest.fixture
def looking(settings: Settings) -> Iterator["Connection[due.DueWork]"]:
    with closing(due.connect(settings.database_url)) as connection:
        yield connection


@pytest.mark.parametrize("kind", MAKE)
def test_due_work_is_found_and_a_job_that_waits_is_not_due(
    database: Engine, looking: "Connection[due.DueWork]", kind: str
) -> None:
    id = post(database, "a")
    database_s, found = due.look(looking)
    assert found == []
    assert 0 <= transact(database, db.now).timestamp() - database_s < PATIENCE_S
    execute(database, MAKE[kind], {"id": id})
    assert due.look(looking)[1] == [kind]


def test_what_is_found_wakes_its_service_at_once(database: Engine, settings: Settings) -> None:
    keeper = Keeper(settings)
    by_name = {service.name: service for service in keeper.services}
    post(database, "a")
    execute(database, MAKE["cancel"])
    execute(database, MAKE["transfers"], {"id": "00000000-0000-0000-0000-000000000001"})
    watcher = by_name["look for due work"]
    assert isinstance(watcher, DueWatcher)
    with closing(watcher):
        watcher.run_once()
    woken = {name for name, service in by_name.items() if service.wake.is_set()}
    assert woken == {"cancel", "transfers 0", "transfers 1", "transfers 2"}
    keeper.database.dispose()


def test_a_service_that_has_failed_keeps_to_its_timer_and_the_watch_survives_its_connection(
    database: Engine, settings: Settings
) -> None:
    woken, failing = (Periodic(name, 1.0, lambda: None) for name in ("woken", "failing"))
    failing.has_failed = True
    services = {kind: [woken, failing] for kind in due.NAMES}
    end_watches = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query LIKE '%AS found (name%' AND pid <> pg_backend_pid()"
    )
    with closing(DueWatcher(settings, services, lease_watch(settings))) as watcher:
        watcher.run_once()
        execute(database, end_watches)
        post(database, "a")
        execute(database, MAKE["cancel"])
        watcher.run_once()
    assert woken.wake.is_set()
    assert not failing.wake.is_set()


def test_every_kind_is_looked_for(settings: Settings) -> None:
    assert MAKE.keys() == due.NAMES
    assert {duty.name for duty in duties(settings)} >= due.NAMES - {"webhooks", "transfers"}
