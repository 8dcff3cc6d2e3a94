"""Alembic's entry point. One process migrates at a time; others wait for an advisory lock.

Each migration is a transaction of its own, whose statements wait for locks for _LOCK_TIMEOUT: all
queries of a table wait behind a migration that waits for it. One that got no lock is tried again.
A wait below PostgreSQL's `deadlock_timeout` also ends before a session of the fleet would be ended
for a deadlock with it.
"""

import logging
from collections.abc import Collection
from typing import Any

from alembic import context
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from jobs import clock
from jobs.store import partitions, tables

log = logging.getLogger("millrace.migrations")

_LOCK = 7_214_021  # any number, the same for every `millrace migrate`
_OLDEST_CODE = text("UPDATE alembic_version SET oldest_code = :oldest")
_KEPT_SINCE = "0027"  # the revision that adds the column
_LOCK_TIMEOUT, _PAUSE_S, _TRY_FOR_S = "200ms", 0.5, 300.0


def _keep_oldest_code(ctx: Any, step: object, heads: Collection[str], run_args: object) -> None:
    """Writes what the newest migration declares: the oldest code that may use the schema."""
    revision = max(heads, default="")
    if revision >= _KEPT_SINCE:
        newest: Any = context.script.get_revision(revision).module
        ctx.connection.execute(_OLDEST_CODE, {"oldest": newest.oldest_code})


def _migrate(connection: Connection) -> None:
    """Runs the migrations that are due, those that get no lock again. Raises OperationalError."""
    until_s = clock.monotonic() + _TRY_FOR_S
    while True:
        context.configure(
            connection=connection, target_metadata=tables.metadata,
            transaction_per_migration=True, on_version_apply=_keep_oldest_code,
        )  # fmt: skip
        try:
            with context.begin_transaction():
                context.run_migrations()
        except OperationalError as error:
            connection.rollback()
            blocked = isinstance(error.orig, LockNotAvailable | DeadlockDetected)
            if not blocked or clock.monotonic() > until_s:
                raise
            log.warning("a migration waits for others' locks: %s", error.orig)
            clock.sleep(_PAUSE_S)
        else:
            return


with context.config.attributes["engine"].connect() as connection:
    try:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.execute(text(f"SET lock_timeout = '{_LOCK_TIMEOUT}'"))
        connection.commit()
        _migrate(connection)
        connection.commit()
        with connection.begin():
            partitions.ensure(connection, clock.now())
    finally:
        connection.invalidate()  # closes it: the lock and the setting are the session's
