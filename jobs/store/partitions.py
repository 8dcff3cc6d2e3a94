"""Weekly partitions of items, results and attempts: made ahead, dropped at the end of retention.
A default partition catches the rest.

Both take ACCESS EXCLUSIVE on the whole table, for milliseconds, and whoever waits for it makes all
who come later wait too: behind a COPY that may take minutes, so nobody waits longer than
_PATIENCE; the next turn of the keeper tries again. DETACH … CONCURRENTLY would wait for nobody,
but PostgreSQL refuses it where there is a default partition.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from jobs.store.db import Tx

WEEKS_AHEAD = 4
WEEK = timedelta(weeks=1)
_EPOCH = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday
_PARTITIONED = ("items", "results", "attempts")
_PATIENCE = text("SET LOCAL lock_timeout = '100ms'")


def lowest_id(at: datetime) -> UUID:
    """The least UUID of version 7 of that moment."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


def ensure(tx: Tx, now: datetime) -> list[str]:
    """Makes the partitions of this week and the next; names those that were missing. A week that
    already has rows in the default partition stays there."""
    tx.execute(_PATIENCE)
    monday = _EPOCH + (now - _EPOCH) // WEEK * WEEK
    weeks = [monday + n * WEEK for n in range(WEEKS_AHEAD + 1)]
    return [name for since in weeks for table in _PARTITIONED if (name := _make(tx, table, since))]


def _make(tx: Tx, table: str, since: datetime) -> str | None:
    name = f"{table}_{since:%Y%m%d}"
    if tx.scalar(text("SELECT to_regclass(:name)"), {"name": name}) is not None:
        return None
    bounds = {"low": lowest_id(since), "high": lowest_id(since + WEEK)}
    in_default = (
        f"SELECT EXISTS (SELECT 1 FROM {table}_rest WHERE job_id >= :low AND job_id < :high)"
    )
    if tx.scalar(text(in_default), bounds):
        return None
    tx.execute(
        text(
            f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} "
            f"FOR VALUES FROM ('{bounds['low']}') TO ('{bounds['high']}')"
        )
    )
    return name


_NAMES = text("""
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = CAST(:table AS regclass) AND c.relname ~ '_[0-9]{8}$'
    ORDER BY c.relname
""")


def weeks(tx: Tx, table: str, before: datetime) -> list[tuple[str, datetime]]:
    """(name, Monday) of each week of a table that ended before then, the oldest first."""
    found = [
        (name, datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC))
        for name in tx.scalars(_NAMES, {"table": table})
    ]
    return [(name, since) for name, since in found if since + WEEK <= before]


def drop(tx: Tx, name: str) -> None:
    """Drops a partition. Raises OperationalError where others use the table for too long."""
    tx.execute(_PATIENCE)
    tx.execute(text(f"DROP TABLE IF EXISTS {name}"))
