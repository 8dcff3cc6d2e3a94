"""Weekly partitions of items, results and attempts, made ahead; a default catches the rest."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from jobs.store.db import Tx

WEEKS_AHEAD = 4
_EPOCH = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday
_PARTITIONED = ("items", "results", "attempts")


def _lowest_id(at: datetime) -> UUID:
    """The least UUID of version 7 of that moment."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


def ensure(tx: Tx, now: datetime) -> list[str]:
    """Makes the partitions of this week and the next; names those that were missing."""
    monday = _EPOCH + (now - _EPOCH) // timedelta(weeks=1) * timedelta(weeks=1)
    made = []
    for week in range(WEEKS_AHEAD + 1):
        since = monday + timedelta(weeks=week)
        for table in _PARTITIONED:
            name = f"{table}_{since:%Y%m%d}"
            if tx.scalar(text("SELECT to_regclass(:name)"), {"name": name}) is None:
                low, high = _lowest_id(since), _lowest_id(since + timedelta(weeks=1))
                tx.execute(
                    text(
                        f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} "
                        f"FOR VALUES FROM ('{low}') TO ('{high}')"
                    )
                )
                made.append(name)
    return made
