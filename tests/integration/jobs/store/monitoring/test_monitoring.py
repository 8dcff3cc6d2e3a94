"""What keepers and pages of an operator ask the database: due work, `why`, figures over time."""

import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from psycopg import Connection
from sqlalchemy import Engine, text

from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store import db
from jobs.store.db import Tx
from jobs.store.jobs import read
from jobs.store.monitoring import diagnostics, due, history
from jobs.store.monitoring.observations import Death
from jobs.store.queue import workers
from jobs.store.tenancy import EVERYBODY, acting
from jobs.telemetry.reports.figures import EVERYTHING, Figures
from jobs.usecases.submit import Order, submit
from tests.support.stores.store import count, post
from tests.support.stores.transactions import connected, execute, transact
from tests.support.wait import PATIENCE_S, eventually
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
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
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


# -- what `why` asks


def test_who_waits_for_a_lock_is_told_with_who_holds_it(database: Engine) -> None:
    with database.begin() as holder:
        holder.execute(text("LOCK TABLE jobs"))
        pid = holder.scalar(text("SELECT pg_backend_pid()"))
        query = "SELECT count(*) FROM jobs"
        waiting = threading.Thread(target=execute, args=(database, query))
        waiting.start()
        eventually(lambda: transact(database, diagnostics.locks).waiting)
        found = transact(database, diagnostics.locks)
        assert (found.on, found.blocker, found.waiting) == ("jobs", pid, 1)
        assert 0 <= found.longest_s < PATIENCE_S
    waiting.join()
    assert transact(database, diagnostics.locks).waiting == 0


def test_deaths_are_told_by_how_and_the_latest_first(database: Engine) -> None:
    with database.begin() as tx:
        crashed, silent, stopped = (
            workers.register(tx, f"w{n}", "default", "cpu", ["echo@1"]) for n in range(3)
        )
        workers.report_death(tx, crashed, "crashed")
        workers.heartbeat(tx, stopped, "stopped")
        ages = "UPDATE workers SET heartbeat_at = now() - interval '90 s' WHERE incarnation = :id"
        tx.execute(text(ages), {"id": silent})
        workers.mark_lost(tx, 60)
        seen = diagnostics.observations(tx, 60)
    hows = [(death.incarnation, death.how) for death in seen.deaths]
    assert hows == [(crashed, "crashed"), (silent, "silent")]
    assert isinstance(seen.deaths[0], Death)
    assert seen.deaths[1].ago_s >= 90


def test_what_came_before_a_job_is_counted_by_whose_it_is(database: Engine) -> None:
    tenants = ("other", "t", "other", "t")
    *_, last = [submit(database, SAMPLES, it, Order("echo"), array=["x"]).id for it in tenants]
    with acting(database, EVERYBODY) as tx:
        job = read.one(tx, "t", last)
        assert diagnostics.count_own_ahead(tx, job) == 1
        assert diagnostics.count_others_ahead(tx, job) == 2
        tx.execute(text("UPDATE jobs SET state = 'paused' WHERE tenant_id = 'other'"))
        assert diagnostics.count_others_ahead(tx, job) == 0


# -- figures: written once a minute, averaged over ten, deleted when they are old

MODEL = "model:m@1"
AGES_S = 60 * (10**8 + 1)  # a step that has all minutes of this century


def write(tx: Tx, minutes_ago: int, subject: str = MODEL, **figures: float) -> None:
    """Writes a minute of the past: so long before that in which the transaction began."""
    its = Figures(**figures)
    history.add_minute(tx, {EVERYTHING: its, subject: its})
    back = "UPDATE figures SET at = at - :ago WHERE step = 60 AND at > now() - interval '1 min'"
    tx.execute(text(back), {"ago": timedelta(minutes=minutes_ago)})


def old(database: Engine, *rows: tuple[float, int]) -> None:
    """Writes rows of so many days ago and of so long a step."""
    for days, step in rows:
        execute(
            database,
            "INSERT INTO figures (subject, step, at, calls_s) "
            "VALUES (:its, :step, now() - :ago, :days)",
            {"its": MODEL, "step": step, "ago": timedelta(days=days), "days": days},
        )


def points(tx: Tx, minutes: int = 30, step_s: int = 60) -> list[Figures]:
    return [row.figures for row in history.read(tx, MODEL, 60 * minutes, step_s)]


def test_a_minute_is_written_once_whatever_the_number_of_keepers(database: Engine) -> None:
    with database.begin() as tx:
        assert not history.is_written(tx)
        for calls_s in (1.0, 9.0):
            its = Figures(calls_s=calls_s)
            history.add_minute(tx, {EVERYTHING: its, MODEL: its})
        assert history.is_written(tx)
        assert [its.calls_s for its in points(tx)] == [1.0]


def test_points_are_of_one_subject_and_in_order_with_gaps_left_out(database: Engine) -> None:
    with database.begin() as tx:
        write(tx, 3, calls_s=3.0, waiting=2.0)
        write(tx, 1, calls_s=1.0)
        write(tx, 2, "worker:1", calls_s=8.0)
    rows = transact(database, history.read, MODEL, 1800, 60)
    assert [row.figures.calls_s for row in rows] == [3.0, 1.0]
    assert rows[1].at - rows[0].at == timedelta(minutes=2)
    assert rows[1].figures.waiting is None


def test_latencies_are_weighted_by_calls_and_of_queues_the_longest_counts(database: Engine) -> None:
    with database.begin() as tx:
        write(tx, 3, calls_s=0.0)
        write(tx, 2, calls_s=9.0, waiting=2.0, p50_s=0.1, p95_s=0.2)
        write(tx, 1, calls_s=1.0, waiting=50.0, p50_s=1.1, p95_s=1.2)
        [its] = points(tx, step_s=AGES_S)
    assert its.calls_s == pytest.approx(10 / 3)
    assert its.waiting == 50.0
    assert (its.p50_s, its.p95_s) == pytest.approx((0.2, 0.3))


def test_ten_minutes_that_passed_get_a_row_and_those_to_come_none(database: Engine) -> None:
    coarse = text(
        f"SELECT calls_s FROM figures WHERE step = 600 AND subject = '{MODEL}' ORDER BY at"
    )
    with database.begin() as tx:
        first = db.now(tx).minute % 10 + 1  # minutes ago: the end of the last ten
        for minutes_ago in (first + 12, first + 4, first):
            write(tx, minutes_ago, calls_s=float(minutes_ago - first), p50_s=0.5)
        tx.execute(text("DELETE FROM figures WHERE step = 600"))
        for _ in range(2):  # the second time nothing is due
            history.add_minute(tx, {})
            assert tx.scalars(coarse).all() == pytest.approx([12.0, 2.0])


def test_a_long_time_is_read_from_the_rows_of_ten_minutes(database: Engine) -> None:
    old(database, (1.9, 60), (6, 600), (29, 600))
    week, month = 7 * 86_400, 30 * 86_400
    rows = transact(database, history.read, MODEL, week, 3600)
    assert [row.figures.calls_s for row in rows] == [6.0]
    assert len(transact(database, history.read, MODEL, month, 14_400)) == 2


def test_rows_go_when_they_are_old(database: Engine) -> None:
    old(database, (1.9, 60), (2.1, 60), (29, 600), (31, 600))
    assert transact(database, history.delete_old) == 2
    assert transact(database, history.delete_old) == 0
    assert count(database, "figures") == 2


@pytest.mark.parametrize("role", [db.API, db.WORKER])
def test_each_role_may_do_its_part_alone(database: Engine, database_url: str, role: str) -> None:
    with connected(database_url, role) as engine, engine.begin() as tx:
        assert history.read(tx, MODEL, 1800, 60) == []
        may = "SELECT has_table_privilege('figures', :right)"
        held = {
            right: tx.scalar(text(may), {"right": right})
            for right in ("INSERT", "UPDATE", "DELETE")
        }
    writes = role == db.WORKER
    assert held == {"INSERT": writes, "UPDATE": False, "DELETE": writes}
