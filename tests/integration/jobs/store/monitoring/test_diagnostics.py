"""What `why` asks the database."""

import threading

from sqlalchemy import Engine, text

from jobs.models.builtin_models import SAMPLES
from jobs.store.jobs import read
from jobs.store.monitoring import diagnostics
from jobs.store.monitoring.observations import Death
from jobs.store.queue import workers
from jobs.store.tenancy import EVERYBODY, acting
from jobs.usecases.submit import Order, submit
from tests.support.stores.transactions import execute, transact
from tests.support.wait import PATIENCE_S, eventually


def test_who_waits_for_a_lock_is_told_with_who_holds_it(database: Engine) -> None:
    with database.begin() as holder:
        holder.execute(text("LOCK TABLE jobs"))
        pid = holder.scalar(text("SELECT pg_backend_pid()"))
        query = "SELECT count(*) FROM jobs"
        waiting = threading.Thread(target=execute, args=(database, query))
        waiting.start()
        with database.connect() as tx:
            found = eventually(lambda: diagnostics.locks(tx).waiting and diagnostics.locks(tx))
        assert found
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
