"""What taking a job in needs, in an api process and in the processes that it starts for ingests."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy import Engine as Database

from jobs.blobs.payloads import Payloads
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import tenancy
from jobs.store.db import Tx


@dataclass(frozen=True, slots=True)
class Resources:
    settings: Settings
    file: ModelsFile
    database: Database
    payloads: Payloads

    @property
    def models(self) -> Registry:
        """Those of this moment."""
        return self.file.models

    def acting(self, tenant: str) -> AbstractContextManager[Tx]:
        """A transaction that sees this tenant's rows alone."""
        return tenancy.acting(self.database, tenant)
