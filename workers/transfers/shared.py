"""What both ways of a transfer need, in the process that does them."""

from dataclasses import dataclass

from sqlalchemy import Engine as Database

from jobs.blobs.objects import Objects
from jobs.blobs.payloads import Payloads
from jobs.blobs.store import BlobStore
from jobs.models_file import ModelsFile
from jobs.registry import Registry
from jobs.settings import Settings


class NotOurs(Exception):
    """The transfer was claimed by another one, its job cancelled, retried or deleted: nothing that
    is in hand may be stored."""


@dataclass(frozen=True, slots=True)
class Shared:
    """files: where they lie."""

    settings: Settings
    file: ModelsFile
    database: Database
    payloads: Payloads
    files: BlobStore
    objects: Objects

    @property
    def models(self) -> Registry:
        """Those of this moment."""
        return self.file.models
