"""Connections to PostgreSQL that processes may open, and those that it allows."""

import logging

from sqlalchemy import Engine as Database
from sqlalchemy import text

API, KEEPER, WORKER = 26, 46, 27
"""Most connections of a process, with those of its supervisor and child processes."""
_RESERVE = 13  # superuser_reserved_connections and those of commands

log = logging.getLogger("millrace.processes")


def most(workers: int) -> int:
    """Returns the most connections of an api, a keeper and so many workers, with a reserve."""
    return API + KEEPER + WORKER * workers + _RESERVE


def check(database: Database, workers: int) -> None:
    """Warns where the server allows fewer connections than these processes may open."""
    with database.connect() as tx:
        allowed = int(tx.scalars(text("SELECT current_setting('max_connections')")).one())
    if allowed < most(workers):
        log.warning(
            "PostgreSQL allows %d connections, and an api, a keeper and %d workers may open %d: "
            "set max_connections to that, or start fewer workers",
            *(allowed, workers, most(workers)),
        )
