"""Lock between a backup and the removal of blobs: what its rows refer to stays until it has it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine as Database
from sqlalchemy import text

from jobs.store.db import Tx

_NAME = "hashtextextended('millrace.blobs', 0)"
_MAY_REMOVE = text(f"SELECT pg_try_advisory_xact_lock_shared({_NAME})")
_STILL = text("SELECT")
_KEEP = text(f"SELECT pg_advisory_lock({_NAME})")


def unless_kept(remove: Callable[[Tx], int]) -> Callable[[Tx], int]:
    """Returns a duty that removes blobs, and does nothing while a backup keeps them."""
    return lambda tx: remove(tx) if tx.scalar(_MAY_REMOVE) else 0


@contextmanager
def kept(database: Database) -> Iterator[None]:
    """Keeps all blobs; removals that have begun are committed when this begins. Raises at the end
    where the connection, and with it the lock, was lost."""
    connection = database.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        connection.execute(_KEEP)
        yield
        connection.execute(_STILL)
    finally:
        connection.invalidate()  # closed, and the lock with it
        connection.close()
