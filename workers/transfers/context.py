"""Resources that imports and exports need in the process that runs them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Engine as Database

from jobs.blobs.payloads import Payloads
from jobs.blobs.store import BlobStore, open_store
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.store.registry import snapshot
from jobs.store.registry.follower import look

if TYPE_CHECKING:
    from jobs.blobs.objects import Objects


class ClaimLost(Exception):
    """Raised where the transfer was claimed by another process, or its job was cancelled, retried
    or deleted: nothing in hand may be stored."""


@dataclass(frozen=True, slots=True)
class TransferContext:
    """Resources of one process."""

    settings: Settings
    file: ModelsFile
    database: Database
    payloads: Payloads
    files: BlobStore  #: bytes of tenants' files

    @classmethod
    def open(cls, settings: Settings) -> "TransferContext":
        """Connects to everything. Raises SettingsError."""
        return cls(
            settings,
            ModelsFile(settings.models),
            db.connect(settings.database_url, pool_size=2, role=db.WORKER),
            Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint),
            open_store(settings.files, settings.s3_endpoint),
        )

    def read_models(self) -> None:
        """Reads the models file and the registry again. Raises database errors."""
        self.file.poll()
        look(self.database, self.file.adopt, snapshot.read_with_unfinished)

    @property
    def models(self) -> Registry:
        """Models as they were when they were last read."""
        return self.file.models

    @property
    def objects(self) -> "Objects":
        """Client for the objects that tenants name in S3."""
        from jobs.blobs.objects import Objects  # boto3 takes a third of a second to load

        return Objects(self.settings.s3_endpoint)
