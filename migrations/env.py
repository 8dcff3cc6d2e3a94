"""Alembic's entry point. One migration runs at a time; others wait for an advisory lock."""

from alembic import context
from sqlalchemy import text

from jobs import clock
from jobs.store import partitions, tables

_LOCK = 7_214_021  # any number, the same for every `millrace migrate`

with context.config.attributes["engine"].begin() as connection:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    context.configure(connection=connection, target_metadata=tables.metadata)
    context.run_migrations()
    partitions.ensure(connection, clock.now())
