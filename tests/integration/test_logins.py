"""Who logs in where nobody is a superuser: ops/deploy/postgres/logins.sql, taken at its word."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from api import door
from jobs.settings import Settings
from jobs.store import db
from migrations.run import is_current, migrate
from ops.embedded import EmbeddedPostgres
from ops.embedded.lock import HomeLock

LOGINS = Path(__file__).parents[2] / "ops" / "deploy" / "postgres" / "logins.sql"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server of its own: roles belong to all its databases."""
    home = tmp_path_factory.mktemp("logins")
    server = EmbeddedPostgres(home)
    with HomeLock(home):
        server.start()
        try:
            with psycopg.connect(db.plain_url(server.url), autocommit=True) as superuser:
                superuser.execute("DROP DATABASE IF EXISTS nothing")
                for statement in _statements():
                    superuser.execute(statement)
            yield server
        finally:
            server.stop()
