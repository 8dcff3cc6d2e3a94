"""Poolers between the processes and PostgreSQL: one that lends servers by session is used, one that
lends them by transaction is refused."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from sqlalchemy import Engine

from api import server as api_server
from jobs.settings import Settings, SettingsError
from jobs.store import db
from jobs.store.pooler import REFUSAL
from ops.cli import check
from ops.cli.setup import services
from ops.supervisor import database_setup
from tests.support.cases import each
from tests.support.servers.pooler import PGBOUNCER, pgbouncer, pooler
from tests.support.stores.transactions import connected, scalar
from workers import app as worker
from workers.keeper import keeper

Pooled = Callable[..., Settings]
REAL = pytest.param("pgbouncer", marks=pytest.mark.skipif(not PGBOUNCER, reason="no PgBouncer"))
BUSY = 6  # clients beside the one that is tested


@pytest.fixture(params=["small", REAL])
def pooled(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Iterator[Pooled]:
    """Starts a pooler in a mode. Returns settings whose database is behind it."""
    url = urlsplit(settings.database_url)
    where = parse_qs(url.query)
    server = Path(where["host"][0], f".s.PGSQL.{where['port'][0]}")
    with ExitStack() as stack:

        def start(mode: str, **options: Any) -> Settings:
            made: AbstractContextManager[int] = pooler(server, mode, **options)
            if request.param == "pgbouncer":
                made = pgbouncer(server, str(url.username), mode, tmp_path)
            query = f"host=127.0.0.1&port={stack.enter_context(made)}"
            return settings.evolve(database_url=url._replace(query=query).geturl())

        yield start


@pytest.fixture
def crowd() -> Iterator[Callable[[str], None]]:
    """Starts clients that run one transaction after the other until the test ends."""
    ended, threads = threading.Event(), list[threading.Thread]()

    def work(url: str) -> None:
        with psycopg.connect(url, prepare_threshold=None) as client:
            while not ended.is_set():
                client.execute("SELECT 1")
                client.commit()

    def start(url: str) -> None:
        threads[:] = [threading.Thread(target=work, args=(url,)) for _ in range(BUSY)]
        for thread in threads:
            thread.start()

    yield start
    ended.set()
    for thread in threads:
        thread.join()


def test_a_pooler_by_session_keeps_the_role_and_the_limits(pooled: Pooled, crowd: Any) -> None:
    url = pooled("session").database_url
    crowd(db.plain_url(url))
    db.check_sessions(url)
    with connected(url, db.API) as engine:
        for _ in range(2):
            assert scalar(engine, "SELECT current_user") == db.API
            assert scalar(engine, "SHOW statement_timeout") == "1min"
    with db.connect_alone(url, {"role": db.WORKER}) as listening:
        listening.execute(f"LISTEN {db.WORK_CHANNEL}")
        with connected(url, db.WORKER) as engine, engine.begin() as tx:
            db.notify_work(tx)
        assert [one.channel for one in db.await_notices(listening, 60)] == [db.WORK_CHANNEL]


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("oldest_first", [False, True])
def test_a_pooler_by_transaction_is_refused_and_nothing_is_set_there(
    pooled: Pooled, crowd: Any, busy: bool, oldest_first: bool
) -> None:
    url = pooled("transaction", oldest_first=oldest_first).database_url
    if busy:
        crowd(db.plain_url(url))
    with pytest.raises(SettingsError, match="pool_mode = session"):
        db.check_sessions(url)
    with connected(url, db.WORKER) as engine, pytest.raises(db.CONNECTION_ERRORS) as refused:
        engine.connect()
    assert REFUSAL in str(refused.value)
    with psycopg.connect(db.plain_url(url), prepare_threshold=None) as client:
        for _ in range(2 * BUSY):
            [found] = client.execute("SELECT current_user = session_user").fetchone() or [None]
            client.commit()
            assert found


def test_every_process_and_command_says_why(pooled: Pooled, monkeypatch: Any) -> None:
    settings = pooled("transaction")
    for start, case in each(
        [
            api_server.serve,
            worker.run_worker,
            keeper.run_keeper,
            lambda given: database_setup.prepare(given, workers=1),
        ]
    ):
        with case, pytest.raises(SettingsError) as refused:
            start(settings)
        with case:
            assert refused.value.problems == [f"MILLRACE_DATABASE_URL: {REFUSAL}"]
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert check.problems() == [f"MILLRACE_DATABASE_URL: {REFUSAL}"]
    [found] = [one for one in services.checks(settings) if one.name == "postgres"]
    assert f"{found.words}: {found.mend}" == REFUSAL


def test_a_direct_connection_is_no_pooler(database: Engine, settings: Settings) -> None:
    db.check_sessions(settings.database_url)
    assert scalar(database, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%postmaster%'")
