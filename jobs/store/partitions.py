"""Weekly partitions of items, results and attempts: made ahead, dropped at the end of retention.

A default partition catches the rest. Both steps take ACCESS EXCLUSIVE on the whole table for
milliseconds; a wait for it, behind a COPY that may take minutes, makes all later ones wait too. So
the wait is short (_LOCK_TIMEOUT), and the keeper's next turn tries again. DETACH … CONCURRENTLY
would block nobody, but PostgreSQL refuses it where there is a default partition.
"""

from datetime import UTC, datetime, timedelta
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Integer, TableClause, Uuid, column, exists, func, select, text
from sqlalchemy import table as sql_table

from jobs import ids
from jobs.store.db import Tx, set_local

WEEKS_AHEAD = 4
WEEK = timedelta(weeks=1)
_EPOCH = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday
_PARTITIONED = ("items", "results", "attempts")
_LOCK_TIMEOUT = "100ms"


def ensure(tx: Tx, now: datetime) -> list[str]:
    """Makes the partitions of this week and the next ones; returns the names of new ones.

    A week that already has rows in the default partition stays there.
    """
    set_local(tx, "lock_timeout", _LOCK_TIMEOUT)
    weeks = [_monday(now) + n * WEEK for n in range(WEEKS_AHEAD + 1)]
    return [name for since in weeks for table in _PARTITIONED if (name := _make(tx, table, since))]


def _make(tx: Tx, table: str, since: datetime) -> str | None:
    name = _name(table, since)
    if tx.scalar(select(func.to_regclass(name))) is not None:
        return None
    low, high = ids.earliest(since), ids.earliest(since + WEEK)
    job = described(f"{table}_rest").c.job_id
    if tx.scalar(select(exists().where(job >= low, job < high))):
        return None
    # Only the owner of the tables may do this: the function runs as the owner.
    tx.execute(select(func.make_week(table, name, low, high)))
    return name


def described(partition: str) -> TableClause:
    """Describes a partition, whose name no table has, by the columns that all of them have."""
    return sql_table(partition, column("job_id", Uuid), column("seq", Integer))


# Written out for its casts: the partition of a week where there is one, else the default one.
_LEAF = text("SELECT coalesce(to_regclass(:week), CAST(:rest AS regclass))::text")


_FOUND: "WeakKeyDictionary[Engine, str]" = WeakKeyDictionary()
"""By database: the week's partition that was found last. It is there until its retention ends."""


def leaf(tx: Tx, table: str, job: UUID) -> str:
    """Returns the partition of a job's rows."""
    at = datetime.fromtimestamp((job.int >> 80) / 1000, UTC)
    week = _name(table, _monday(at))
    if _FOUND.get(tx.engine) == week:
        return week
    found: str = tx.scalars(_LEAF, {"week": week, "rest": f"{table}_rest"}).one()
    if found == week:
        _FOUND[tx.engine] = week
    return found


def _monday(at: datetime) -> datetime:
    return _EPOCH + (at - _EPOCH) // WEEK * WEEK


def _name(table: str, since: datetime) -> str:
    return f"{table}_{since:%Y%m%d}"


# Written out, since the server's catalog is no table of ours.
_NAMES = text("""
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = CAST(:table AS regclass) AND c.relname ~ '_[0-9]{8}$'
    ORDER BY c.relname
""")


def weeks(tx: Tx, table: str, before: datetime) -> list[tuple[str, datetime]]:
    """Lists (name, Monday) of a table's weeks that ended before then, the oldest first."""
    found = [
        (name, datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC))
        for name in tx.scalars(_NAMES, {"table": table})
    ]
    return [(name, since) for name, since in found if since + WEEK <= before]


def drop(tx: Tx, name: str) -> None:
    """Drops a partition. Raises OperationalError where others hold the table for too long."""
    set_local(tx, "lock_timeout", _LOCK_TIMEOUT)
    tx.execute(select(func.drop_week(name)))
