"""What both ways of a transfer need, in the process that does them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Engine as Database

from jobs.blobs.payloads import Payloads
from jobs.blobs.store import BlobStore, open_store
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db

if TYPE_CHECKING:
    from jobs.blobs.objects import Objects


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

    @classmethod
    def of(cls, settings: Settings) -> "Shared":
        """Raises SettingsError."""
        return cls(
            settings,
            ModelsFile(settings.models),
            db.connect(settings.database_url, pool_size=2, role=db.WORKER),
            Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint),
            open_store(settings.files, settings.s3_endpoint),
        )

    @property
    def models(self) -> Registry:
        """Those of this moment."""
        return self.file.models

    @property
    def objects(self) -> "Objects":
        """What tenants name in S3."""
        from jobs.blobs.objects import Objects  # boto3 takes a third of a second to load

        return Objects(self.settings.s3_endpoint)
