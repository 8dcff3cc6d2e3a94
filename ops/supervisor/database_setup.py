"""Database before the first process uses it: its schema, and the connections that it allows."""

import logging

from sqlalchemy import Engine as Database
from sqlalchemy import text

from api.auth import bind_check
from jobs.settings import Settings
from jobs.store import db
from migrations.run import migrate
from ops.supervisor import connections

log = logging.getLogger("millrace.processes")


def prepare(settings: Settings, workers: int, apis: int = 1) -> None:
    """Migrates the database, and checks that these processes may use it. Raises SettingsError."""
    db.check_sessions(settings.database_url)
    database = db.connect(settings.database_url, pool_size=1)
    try:
        migrate(database)
        check_connections(database, workers, apis)
        bind_check.check(settings, database)
    finally:
        database.dispose()


def check_connections(database: Database, workers: int, apis: int = 1) -> None:
    """Warns where the server allows fewer connections than these processes may open."""
    needed = connections.most(workers, apis)
    with database.connect() as tx:
        allowed = int(tx.scalars(text("SELECT current_setting('max_connections')")).one())
    if allowed < needed:
        log.warning(
            "PostgreSQL allows %d connections, and %d apis, a keeper and %d workers may open %d: "
            "set max_connections to that, or start fewer processes",
            *(allowed, apis, workers, needed),
        )
