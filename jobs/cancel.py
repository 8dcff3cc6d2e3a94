"""Cancelling a job: what waits in it is ended in many short transactions."""

from uuid import UUID

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.store import verbs

_PATIENCE_S = 2.0


def cancel(database: Database, job: UUID) -> None:
    """Cancels, and goes on ending what waits for some seconds; the keeper does the rest.

    Raises NotFound where the job was deleted meanwhile.
    """
    until_s = clock.monotonic() + _PATIENCE_S
    with database.begin() as tx:
        verbs.cancel(tx, job)
    while clock.monotonic() < until_s:
        with database.begin() as tx:
            if not verbs.end_cancelled(tx, job):
                return
