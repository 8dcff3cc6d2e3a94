"""Logins where nobody is a superuser, by ops/deploy/postgres/logins.sql, and connections, against
those that PostgreSQL allows."""

import logging
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from jobs.store import db
from migrations import schema
from migrations.run import migrate
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres
from ops.supervisor import connections
from ops.supervisor.database_setup import check_connections
from tests.support.platforms import Platforms, database_of, spec
from tests.support.stores.transactions import connected, scalar

LOGINS = Path(__file__).parents[3] / "ops" / "deploy" / "postgres" / "logins.sql"


def statements() -> list[str]:
    lines = [line for line in LOGINS.read_text().splitlines() if not line.startswith("--")]
    return [found for found in "\n".join(lines).split(";") if found.strip()]


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server of its own: roles belong to all its databases."""
    home = tmp_path_factory.mktemp("logins")
    server = EmbeddedPostgres(home)
    with HomeLock(home).held():
        try:
            server.start()
            url = db.plain_url(server.url).replace("/millrace?", "/postgres?")
            with psycopg.connect(url, autocommit=True) as superuser:
                superuser.execute("DROP DATABASE millrace")  # the embedded one is named so, too
                for statement in statements():
                    superuser.execute(statement)
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="module")
def owned(postgres: EmbeddedPostgres) -> EmbeddedPostgres:
    with connected(postgres.layout.postgres_url("millrace_owner")) as engine:
        assert schema.read(engine).behind
        migrate(engine)
        assert schema.read(engine) == (schema.HEAD, "0028")
    return postgres


@pytest.mark.parametrize(("login", "role"), [("api", db.API), ("worker", db.WORKER)])
def test_what_the_owner_migrated_is_used_in_ones_role_and_no_other(
    owned: EmbeddedPostgres, login: str, role: str
) -> None:
    url, other = owned.layout.postgres_url(login), {db.API: db.WORKER, db.WORKER: db.API}[role]
    with connected(url, role) as engine:
        assert scalar(engine, "SELECT current_user") == role
        assert scalar(engine, "SELECT count(*) FROM jobs") == 0
    refused = pytest.raises(SQLAlchemyError, match="permission denied")
    with connected(url, other) as engine, refused:
        engine.connect()


def test_few_connections_are_warned_of(database: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "millrace.processes"):
        check_connections(database, 1)
        assert not caplog.text
        check_connections(database, 1000)
    assert f"may open {connections.most(1000)}" in caplog.text


@pytest.mark.nightly
def test_eight_workers_fit_into_the_embedded_server(platforms: Platforms) -> None:
    with platforms.running(spec(workers=8)) as platform, database_of(platform) as database:
        allowed = int(scalar(database, "SELECT current_setting('max_connections')"))
        used = scalar(database, "SELECT count(*) FROM pg_stat_activity")
        assert used < allowed >= connections.most(8) > 200
