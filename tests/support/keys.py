"""Keys, made as `millrace keys` makes them."""

from typing import Any

from sqlalchemy import Engine as Database

from jobs import ids
from jobs.api_keys import NewKey
from jobs.store.tenants import api_keys as store
from tests.support.stores.transactions import connected


def make_key(database: Database, tenant: str = "acme", **more: Any) -> tuple[str, str]:
    """(the key, its id)"""
    asked = NewKey(tenant, **more)
    with database.begin() as tx:
        row = store.create(tx, asked)
    return asked.secret, ids.show("key", row.id)


def make_key_at(url: str, tenant: str = "acme", **more: Any) -> tuple[str, str]:
    """The same, in the database of a platform that runs."""
    with connected(url) as database:
        return make_key(database, tenant, **more)
