"""Alembic's entry point. One migration runs at a time; others wait for an advisory lock."""

from typing import Any

from alembic import context
from sqlalchemy import Connection, text

from jobs import clock
from jobs.store import partitions, tables

_LOCK = 7_214_021  # any number, the same for every `millrace migrate`
_OLDEST_CODE = text("UPDATE alembic_version SET oldest_code = :oldest")
_KEPT_SINCE = "0027"  # the revision that adds the column


def _keep_oldest_code(connection: Connection) -> None:
    """Writes what the newest migration declares: the oldest code that may use the schema."""
    revision = context.get_context().get_current_revision() or ""
    if revision >= _KEPT_SINCE:
        newest: Any = context.script.get_revision(revision).module
        connection.execute(_OLDEST_CODE, {"oldest": newest.oldest_code})


with context.config.attributes["engine"].begin() as connection:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    context.configure(connection=connection, target_metadata=tables.metadata)
    context.run_migrations()
    _keep_oldest_code(connection)
    partitions.ensure(connection, clock.now())
