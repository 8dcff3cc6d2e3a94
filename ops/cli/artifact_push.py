"""Stores the files of a folder and their signature as an artifact of the registry."""

from dataclasses import dataclass
from pathlib import Path

import click

from jobs.artifacts import folder as folders
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import Manifest
from jobs.artifacts.push import push
from jobs.blobs.store import open_store
from jobs.models.model import base_of
from jobs.store.db import Tx
from jobs.store.registry import artifacts, versions
from jobs.store.tenancy import EVERYBODY
from ops.cli.admin_database import admin_database, admin_transaction, record
from ops.cli.registry_changes import read_version
from ops.embedded import defaults


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """Folder whose files are in the blob store."""

    digest: str
    signature: str  #: Sigstore bundle, as JSON; "": it has none

    def register(self, tx: Tx) -> str:
        """Registers that all contents are there, and the signature; returns the digest."""
        artifacts.mark_stored(tx, self.digest)
        if self.signature:
            artifacts.sign(tx, self.digest, self.signature, "cli")
        return self.digest


def store(folder: Path, signature: Path | None, *, replace: bool, base: str = "") -> StoredFolder:
    """Stores files that the blob store of this configuration doesn't have.

    signature: file; None: that of the folder, if it has one. replace: stores all files again. base:
    of an adapter, name@version.
    """
    configured, found = defaults.load(), signature or folder / folders.SIGNATURE
    try:
        bundle = found.read_text() if signature or found.exists() else ""
        manifest = folders.read(folder)
        _announce(manifest, _base(base) if base else "")
        opened = open_store(configured.files, configured.s3_endpoint)
        push(opened, folder, manifest, replace=replace)
    except Untrusted as error:
        raise click.ClickException(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{found} can't be read: {error}") from error
    return StoredFolder(manifest.digest, bundle)


def _base(key: str) -> str:
    """Returns what an adapter of this version is bound to. Raises NotFound."""
    name, _, version = key.partition("@")
    with admin_database() as database:
        return base_of(read_version(database, name, version))


def _announce(manifest: Manifest, base: str) -> None:
    """Registers an artifact before its contents are stored, so that no keeper removes those that
    are there already."""
    digest, text, size = manifest.digest, manifest.as_json(), manifest.size
    with admin_transaction() as tx:
        versions.lock_registry(tx)
        if artifacts.add(tx, digest, text, size, "cli", base):
            record(tx, "artifact.push", digest, EVERYBODY, bytes=size)
        row = artifacts.get(tx, digest)
        if row and row.manifest != text:
            raise click.ClickException(
                f"{digest} is registered with the same contents under other names, which the "
                "digest doesn't cover: change or add a file of this folder"
            )
        if row and row.base != base:
            raise click.ClickException(
                f"{digest} was pushed as {artifacts.described(row.base)}, not as "
                f"{artifacts.described(base)}"
            )
        artifacts.begin_push(tx, digest)
