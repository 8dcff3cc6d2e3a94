"""Sessions of the dashboard that were signed out of; their cookies would be valid for hours."""

from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from jobs.store.db import Tx
from jobs.store.tables import ended_sessions as table


def add(tx: Tx, id: str, ends_at: datetime) -> None:
    """Ends a session. ends_at: the end of its cookie's validity."""
    tx.execute(insert(table).values(id=id, ends_at=ends_at).on_conflict_do_nothing())


def has_ended(tx: Tx, id: str) -> bool:
    """Returns True if the session was ended."""
    return tx.scalar(select(table.c.id).where(table.c.id == id)) is not None


def delete_old(tx: Tx) -> int:
    """Deletes the sessions whose cookies are no longer valid; returns their number."""
    return tx.execute(delete(table).where(table.c.ends_at < func.now())).rowcount
