"""Changes of the registry by commands, and how they are shown."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from sqlalchemy import Engine as Database

from jobs import settings
from jobs.errors import NotFound
from jobs.models import models_file, registered
from jobs.models.model import Model
from jobs.store.registry import versions
from jobs.store.tenancy import EVERYBODY, acting
from jobs.usecases.registry.registrar import Registrar
from ops.cli.admin_database import admin_transaction, record
from ops.cli.commands.common import show


@contextmanager
def changing() -> Iterator[Registrar]:
    """Opens a transaction that changes the registry, with the models file of this configuration."""
    declared = models_file.load(settings.load().models)
    with admin_transaction() as tx:
        yield Registrar(tx, declared, "cli", partial(record, tx))


def show_changes(changes: Sequence[tuple[str, str]], as_json: bool) -> None:
    """Prints changes by what they are of."""
    data = [{"name": key, "change": change} for key, change in changes]
    show({"data": data}, (f"{key}  {change}" for key, change in changes), as_json)


def read_version(database: Database, name: str, version: str) -> Model:
    """Returns a version of the registry. Raises NotFound."""
    with acting(database, EVERYBODY) as tx:
        row = versions.get(tx, name, version)
    if row is None:
        raise NotFound(f"the registry has no version {name}@{version}: push it first")
    own = registered.RegisteredVersion(name, version, row.entry, row.artifact or "")
    return registered.parse(own)
