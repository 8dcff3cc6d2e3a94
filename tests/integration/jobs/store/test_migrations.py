"""Migrations of tables that a fleet works with: nobody waits for them, or fails, for long."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from operator import gt
from pathlib import Path
from threading import Event

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, text

import migrations
from tests.support.stores.store import post
from tests.support.stores.transactions import connected, execute, scalar, waits_for_lock
from tests.support.wait import eventually

Migrate = Callable[[str], None]
_BEFORE, _AFTER = "0029", "0030"  # columns of results, results_archive, slices and jobs
_LOCK_SLICE = text("SELECT FROM slices WHERE job_id = :job FOR UPDATE")
_INSERT_RESULT = text("""
    INSERT INTO results (job_id, tenant_id, seq, outcome, units, attempts)
    SELECT id, tenant_id, 0, 'succeeded', 1, 1 FROM jobs WHERE id = :job
""")


@pytest.fixture
def migrate(database: Engine) -> Migrate:
    """Migrates the database to a revision, from its own."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["engine"] = database

    def to(revision: str) -> None:
        now = scalar(database, "SELECT version_num FROM alembic_version")
        (command.upgrade if now < revision else command.downgrade)(config, revision)

    to(_BEFORE)
    return to


@contextmanager
def background(migrate: Migrate) -> Iterator["Future[None]"]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(migrate, _AFTER)


def test_a_settlement_goes_on_while_a_migration_waits_for_its_slice(
    database: Engine, migrate: Migrate
) -> None:
    mine = {"job": post(database, "a")}
    with background(migrate) as migrated:
        with database.begin() as tx:
            tx.execute(_LOCK_SLICE, mine)
            eventually(lambda: waits_for_lock(database))
            tx.execute(_INSERT_RESULT, mine)
        migrated.result()
    assert scalar(database, "SELECT count(truncated) + count(*) FROM results") == 1


@pytest.mark.parametrize("table", ["results", "slices", "jobs"])
def test_nobody_waits_behind_a_migration_that_waits_for_a_long_query(
    database: Engine, migrate: Migrate, table: str
) -> None:
    with background(migrate) as migrated:
        with database.begin() as long:
            long.execute(text(f"SELECT FROM {table}"))
            eventually(lambda: waits_for_lock(database))
            execute(database, f"SET LOCAL statement_timeout = '20s'; SELECT FROM {table}")
            assert not migrated.done()
        migrated.result()


def test_slices_are_settled_while_migrations_go_up_and_down(
    database: Engine, database_url: str, migrate: Migrate
) -> None:
    jobs = [post(database, "a") for _ in range(6)]
    stopped, settled = Event(), [0] * len(jobs)

    def settle_on(n: int) -> None:
        while not stopped.is_set():
            with sessions.connect() as tx:  # rolled back
                for statement in (_LOCK_SLICE, _INSERT_RESULT):
                    tx.execute(statement, {"job": jobs[n]})
            settled[n] += 1

    with connected(database_url, pool_size=6) as sessions, ThreadPoolExecutor(6) as pool:
        workers = [pool.submit(settle_on, n) for n in range(len(jobs))]
        try:
            for revision in [_AFTER, _BEFORE] * 3:
                had = list(settled)
                eventually(lambda had=had: all(map(gt, settled, had)))
                migrate(revision)
        finally:
            stopped.set()
        for worker in workers:
            worker.result()
