"""What taking a job in needs, in an api process and in the processes that it starts for ingests."""

from dataclasses import dataclass

from sqlalchemy import Engine as Database

from jobs.blobs.payloads import Payloads
from jobs.models_file import ModelsFile
from jobs.registry import Registry
from jobs.settings import Settings


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
