"""Cancelling a job: what waits in it is ended in many short transactions."""

from uuid import UUID

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.store import verbs
from jobs.store.tenancy import EVERYBODY, acting

_PATIENCE_S = 2.0


def cancel(database: Database, job: UUID, tenant: str = EVERYBODY) -> None:
    """Cancels, and goes on ending what waits for some seconds; the keeper does the rest.

    Raises NotFound where the job was deleted meanwhile.
    """
    until_s = clock.monotonic() + _PATIENCE_S
    with acting(database, tenant) as tx:
        verbs.cancel(tx, job, tenant)
    while clock.monotonic() < until_s:
        with acting(database, tenant) as tx:
            if not verbs.end_cancelled(tx, job, tenant):
                return
