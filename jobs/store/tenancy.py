"""Whose transaction it is. The store's own filters name the tenant; PostgreSQL's row-level
security, which goes by the name that is set here, shows no other row even where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine as Database
from sqlalchemy import text

from jobs.store.db import Tx

EVERYBODY = "*"
"""For operators, and for what one query does for many. No tenant has this name."""

_ACT = text("SELECT set_config('millrace.tenant', :tenant, true)")


@contextmanager
def acting(database: Database, tenant: str) -> Iterator[Tx]:
    """A transaction in which this tenant's rows are there, and no others."""
    with database.begin() as tx:
        act(tx, tenant)
        yield tx


def act(tx: Tx, tenant: str) -> None:
    """From here to its end the transaction is this tenant's."""
    tx.execute(_ACT, {"tenant": tenant})
