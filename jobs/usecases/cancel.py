"""Cancelling a job: what waits in it is ended in many short transactions."""

from collections.abc import Callable
from uuid import UUID

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.store.db import Tx
from jobs.store.jobs import verbs
from jobs.store.tenancy import EVERYBODY, acting

_PATIENCE_S = 2.0


def cancel(
    database: Database,
    job: UUID,
    tenant: str = EVERYBODY,
    note: Callable[[Tx, str], None] = lambda tx, before: None,
) -> None:
    """Cancels, and goes on ending what waits for some seconds; the keeper does the rest. note: is
    told the state that the job was in, in the transaction that cancels it.

    Raises NotFound where the job was deleted meanwhile.
    """
    until_s = clock.monotonic() + _PATIENCE_S
    with acting(database, tenant) as tx:
        note(tx, verbs.cancel(tx, job, tenant))
    while clock.monotonic() < until_s:
        with acting(database, tenant) as tx:
            if not verbs.end_cancelled(tx, job, tenant):
                return
