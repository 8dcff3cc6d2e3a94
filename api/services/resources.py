"""Resources to take a job in: in an api process, and in the child processes of its ingest pool."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy import Engine as Database

from jobs.blobs.payloads import Payloads
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import tenancy
from jobs.store.db import Tx
from jobs.store.notifier import WorkNotifier


@dataclass(frozen=True, slots=True)
class Resources:
    """Settings, models and stores."""

    settings: Settings
    models_file: ModelsFile
    database: Database
    payloads: Payloads
    #: Notifies keepers of stored jobs; None, in a child process: their transactions do.
    notifier: WorkNotifier | None = None

    @property
    def models(self) -> Registry:
        """Registry of this moment."""
        return self.models_file.models

    def models_of(self, tenant: str) -> Registry:
        """Returns the registry of this moment as a tenant sees it."""
        return self.models.of_tenant(tenant)

    def acting(self, tenant: str) -> AbstractContextManager[Tx]:
        """Opens a transaction that sees this tenant's rows only."""
        return tenancy.acting(self.database, tenant)
