"""Staging of versions with artifacts: who signed them, and their files in the cache."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.artifacts import trust
from jobs.artifacts.cache import ArtifactCache, Snapshot
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import Manifest
from jobs.blobs.store import open_store
from jobs.errors import PayloadLost
from jobs.models import artifact_paths
from jobs.models.adapters import Adapter
from jobs.models.model import AdaptedModel, Model, base_of
from jobs.settings import Settings
from jobs.store.registry import artifacts

_log = logging.getLogger(__name__)


def open_cache(settings: Settings) -> ArtifactCache:
    """Opens the cache of this host, which all its workers share."""
    store = open_store(settings.files, settings.s3_endpoint)
    return ArtifactCache(_folder(settings), store, settings.artifacts_mb)


def _folder(settings: Settings) -> Path:
    return settings.artifacts or settings.home / "artifacts"


@dataclass(frozen=True, slots=True)
class TrustedArtifact:
    """Artifact that may be loaded, once its contents are those of the manifest."""

    manifest: Manifest
    signer: str  #: name of the key that signed it; "": the trust file asks for none
    base: str = ""  #: of an adapter: its base's artifact, or name@version


def read_trusted(database: Database, settings: Settings, digest: str) -> TrustedArtifact:
    """Returns an artifact of the registry that the trust file lets load.

    Raises Untrusted where the registry doesn't have it, its manifest is not that of the digest, or
    nobody trusted signed it; SettingsError where the trust file is broken; what SQLAlchemy raises.
    """
    with database.begin() as tx:
        row = artifacts.get(tx, digest)
        bundles = [one.bundle for one in artifacts.signatures_of(tx, digest)]
    if row is None:
        raise Untrusted(f"the registry has no artifact {digest}; push it with `millrace models`")
    manifest = Manifest.from_json(row.manifest)
    if manifest.digest != digest:
        raise Untrusted(f"the registry's manifest of {digest} has the digest {manifest.digest}")
    signer = trust.read(settings.trust).check(manifest, bundles)
    return TrustedArtifact(manifest, signer, row.base)


class Stager:
    """Artifacts of the versions that one worker has loaded; these are never evicted."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self._snapshots = dict[str, list[Snapshot]]()

    def verify(self, digest: str) -> TrustedArtifact:
        """Returns an artifact that may be staged. Raises what `read_trusted` does."""
        return read_trusted(self._database, self._settings, digest)

    def stage(self, model: Model, trusted: TrustedArtifact, stopped: Callable[[], bool]) -> Model:
        """Returns a version with its files in the cache, where they stay until `release`.

        Raises Untrusted, with the file and the key; InsufficientStorage; BlobStoreUnavailable;
        FetchStopped once `stopped` is true.
        """
        if trusted.base:
            raise Untrusted(f"{model.artifact} is an adapter of {trusted.base}, and no model")
        return model.staged(self._stage(model, trusted, stopped), trusted.manifest.digests)

    def stage_adapter(self, model: AdaptedModel, stopped: Callable[[], bool]) -> Adapter:
        """Returns an adapter with its files in the cache, where they stay as long as those of its
        base, which is staged. One that can't be loaded is a RefusedAdapter, with the reason."""
        base, adapter = model.base, model.adapter
        if not adapter.artifact:
            [root, *_] = self._snapshots[base.key]
            return replace(adapter, path=artifact_paths.staged(adapter.path, root.path))
        try:
            trusted = self.verify(adapter.artifact)
            if trusted.base != base_of(base):
                raise Untrusted(
                    f"{adapter.artifact} is no adapter of {base.key}, but of "
                    f"{trusted.base or 'none'}"
                )
            path = self._stage(base, trusted, stopped)
            return adapter.staged(path, trusted.manifest.digests)
        except (Untrusted, ValueError) as error:
            return adapter.refused(f"{type(error).__name__}: {error}", transient=False)
        except Exception as error:  # database, blob store, cache or trust file
            return adapter.refused(f"{type(error).__name__}: {error}", transient=True)

    def _stage(self, model: Model, trusted: TrustedArtifact, stopped: Callable[[], bool]) -> Path:
        since_s, manifest = clock.monotonic(), trusted.manifest
        try:
            snapshot = open_cache(self._settings).stage(manifest, stopped)
        except (Untrusted, PayloadLost) as error:
            signed = f" (what the key {trusted.signer!r} signed)" if trusted.signer else ""
            raise Untrusted(f"{error}{signed}") from error
        self._snapshots.setdefault(model.key, []).append(snapshot)
        took_s = clock.monotonic() - since_s
        signed = f", signed by the key {trusted.signer}" if trusted.signer else ""
        size_mb = manifest.size >> 20
        _log.info("%s: %d MiB are staged after %.1f s%s", model.key, size_mb, took_s, signed)
        return snapshot.path

    def release(self, model: Model) -> None:
        """Lets the cache evict the files of a version that is out of memory."""
        for snapshot in self._snapshots.pop(model.key, ()):
            snapshot.release()
