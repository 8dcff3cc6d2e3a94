"""Cancellation of a job: its waiting items end in many short transactions."""

from collections.abc import Callable
from uuid import UUID

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.store.db import Tx
from jobs.store.jobs import verbs
from jobs.store.tenancy import EVERYBODY, acting

_END_FOR_S = 2.0


def cancel(
    database: Database,
    job: UUID,
    tenant: str = EVERYBODY,
    note: Callable[[Tx, str], None] = lambda tx, before: None,
) -> None:
    """Cancels a job, and ends what waits for some seconds; the keeper does the rest.

    note: called with the job's former state in the transaction that cancels it. Raises NotFound
    where the job was deleted meanwhile.
    """
    until_s = clock.monotonic() + _END_FOR_S
    with acting(database, tenant) as tx:
        note(tx, verbs.cancel(tx, job, tenant))
    while clock.monotonic() < until_s:
        with acting(database, tenant) as tx:
            if not verbs.end_cancelled(tx, job, tenant):
                return
