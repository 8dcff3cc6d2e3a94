"""Who is recognized, for a while, where the database is away."""

import pytest
from sqlalchemy import Engine, text

from api.auth import cache
from api.auth.authenticator import Authenticator
from jobs import clock, ids
from jobs.errors import Unavailable
from jobs.settings import Settings
from jobs.store import db
from jobs.store.tenants import api_keys
from ops.embedded.servers import EmbeddedServers
from tests.support.credentials import authenticating, is_refused, who
from tests.support.keys import make_key
from tests.support.stores.transactions import execute, scalar, transact
from tests.support.wait import eventually_async

pytestmark = pytest.mark.anyio


async def test_while_the_database_is_away_those_go_on_that_were_known_for_five_minutes(
    servers: EmbeddedServers, database: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = make_key(database)
    stranger, _ = make_key(database)
    now_s = [clock.monotonic()]
    monkeypatch.setattr(clock, "monotonic", lambda: now_s[0])
    async with authenticating(settings, listening=False) as auth:
        assert await who(auth, key)
        _shut(servers, database.url.database)
        for _ in range(50):
            now_s[0] += cache.STALE_S / 51
            assert await who(auth, key)
        with pytest.raises(db.CONNECTION_ERRORS):
            await who(auth, stranger)
        now_s[0] += cache.STALE_S
        with pytest.raises(Unavailable):
            await who(auth, key)


def _shut(servers: EmbeddedServers, name: str | None) -> None:
    """Nobody gets into this database from now on, and whoever is in it is thrown out."""
    elsewhere = db.connect(servers.postgres.url, pool_size=1)
    with elsewhere.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
            {"name": name},
        )
    elsewhere.dispose()


_END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def test_after_the_database_was_away_a_revoked_key_is_refused_at_once_again(
    database: Engine, only_told: None, auth: Authenticator
) -> None:
    key, id = make_key(database)
    assert await who(auth, key)
    execute(database, _END_OTHERS)
    await eventually_async(lambda: _listeners(database))
    assert await who(auth, key)
    transact(database, api_keys.revoke, "*", ids.parse("key", id))
    await is_refused(auth, key)


def _listeners(database: Engine) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN \"millrace_keys\"'"
    return int(scalar(database, query))
