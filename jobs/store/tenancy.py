"""The tenant of a transaction.

The store's filters name the tenant; PostgreSQL's row-level security, which goes by the name that is
set here, shows no other row even where a filter is missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine as Database

from jobs.store.db import Tx, set_local

EVERYBODY = "*"
"""Name for operators, and for queries on behalf of all tenants; no tenant has it."""


@contextmanager
def acting(database: Database, tenant: str) -> Iterator[Tx]:
    """Opens a transaction that sees this tenant's rows alone."""
    with database.begin() as tx:
        act(tx, tenant)
        yield tx


def act(tx: Tx, tenant: str) -> None:
    """Sets the tenant of the rest of the transaction."""
    set_local(tx, "millrace.tenant", tenant)
