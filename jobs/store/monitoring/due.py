"""Look for work of the keeper that is due: one query in place of a transaction for each kind."""

from typing import NamedTuple

from psycopg import Connection
from psycopg.rows import args_row

from jobs.store import db

_SETTINGS = {"role": db.WORKER, "statement_timeout": "5s"}

# Each condition is that of the duty's own query, or a wider one; all have an index, or tables that
# are small. Written out: SQLAlchemy would take longer to send it than PostgreSQL to answer.
_LOOK = """
    SELECT extract(epoch FROM clock_timestamp())::float8, ARRAY(SELECT name FROM (VALUES
        ('reap', EXISTS (SELECT FROM slices WHERE state = 'leased')),
        ('cancel', EXISTS (
            SELECT FROM jobs j WHERE j.state = 'cancelling' AND EXISTS (
                SELECT FROM slices s WHERE s.job_id = j.id AND s.state IN ('ready', 'held')))),
        ('expire', EXISTS (SELECT FROM jobs WHERE finished_at IS NULL AND expires_at < now())),
        ('erase rows', EXISTS (SELECT FROM deletions WHERE erased < total)),
        ('erase payloads', EXISTS (SELECT FROM deletions WHERE erased = total)),
        ('erase tenants', EXISTS (SELECT FROM tenants WHERE erased_at IS NOT NULL)),
        ('expire files', EXISTS (SELECT FROM files WHERE expires_at <= now())),
        ('webhooks', EXISTS (
            SELECT FROM webhook_deliveries WHERE state = 'pending' AND due_at <= now())),
        ('transfers', EXISTS (SELECT FROM transfers WHERE due_at <= now()))
    ) AS found (name, is_due) WHERE is_due)
"""

NAMES = frozenset(
    {
        "reap",
        "cancel",
        "expire",
        "erase rows",
        "erase payloads",
        "erase tenants",
        "expire files",
        "webhooks",
        "transfers",
    }
)
"""Kinds of work that `look` returns."""


class DueWork(NamedTuple):
    """Work that is due, and the time."""

    #: Time of the database, epoch s.
    database_s: float
    #: Of NAMES.
    kinds: list[str]


def connect(url: str) -> "Connection[DueWork]":
    """Opens a connection for `look` alone, without transactions. Raises psycopg.Error."""
    return db.connect_alone(url, _SETTINGS, row_factory=args_row(DueWork))


def look(connection: "Connection[DueWork]") -> DueWork:
    """Returns the kinds of work that are due. Raises psycopg.Error."""
    found = connection.execute(_LOOK).fetchone()
    assert found
    return found
