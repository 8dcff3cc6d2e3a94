"""Transactions of an admin on the database, which need no api."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from getpass import getuser
from typing import Any

from sqlalchemy import Engine as Database
from sqlalchemy.exc import OperationalError

from jobs import clock, ids, settings
from jobs.settings import SettingsError
from jobs.store import db
from jobs.store.db import Tx
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import audit
from migrations import schema
from migrations.run import migrate
from ops.embedded import defaults
from ops.embedded.errors import HomeInUse
from ops.embedded.servers import EmbeddedServers

_STARTS_WITHIN_S = 20.0
_POLL_S = 0.1


@contextmanager
def admin_transaction() -> Iterator[Tx]:
    """Opens a transaction that sees the rows of all tenants. Raises what `admin_database` does."""
    with admin_database() as database, acting(database, EVERYBODY) as tx:
        yield tx


@contextmanager
def admin_database() -> Iterator[Database]:
    """Connects to the database, for several transactions.

    Starts and migrates the embedded database where it doesn't run. Raises EmbeddedError,
    SettingsError.
    """
    configured = settings.load()
    embedded = not configured.database_url
    servers = EmbeddedServers(configured.home, postgres=embedded, redis=False)
    database = db.connect(defaults.fill_in(configured).database_url, pool_size=1)
    try:
        if embedded:
            _start(servers, database)
        elif problem := schema.read(database).problem:
            raise SettingsError([problem])
        yield database
    except OperationalError as error:
        raise SettingsError([f"the database: {str(error).splitlines()[0]}"]) from error
    finally:
        database.dispose()
        servers.stop()


def record(tx: Tx, act: str, target: str, tenant: str, **detail: Any) -> None:
    """Writes to the audit log. detail: ids, names and states; no secret."""
    audit.record(
        tx,
        tenant=tenant,
        actor="cli",
        act=act,
        target=target,
        detail={**detail, "user": getuser()},
        request_id=ids.show("req", ids.new()),
    )


def _start(servers: EmbeddedServers, database: Database) -> None:
    until_s = clock.monotonic() + _STARTS_WITHIN_S
    while True:
        try:
            with suppress(HomeInUse):
                servers.start()
            migrate(database)
        except db.CONNECTION_ERRORS:  # another process is starting or ending it
            if clock.monotonic() > until_s:
                raise
            clock.sleep(_POLL_S)
        else:
            return
