"""Contents of artifacts are removed once only versions that were retired long ago have them."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from jobs.artifacts import folder
from jobs.artifacts.manifest import Manifest
from jobs.artifacts.push import blob_key, push
from jobs.blobs.folder import FolderBlobs
from jobs.errors import Conflict
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.store import db
from jobs.store.registry import artifacts, removal
from jobs.usecases.registry.registrar import Registrar
from jobs.usecases.submit import Order, submit
from tests.integration.jobs.store.registry.test_registrar import ENTRY, record
from tests.support import signing
from tests.support.stores.transactions import transact

GRACE = timedelta(days=30)


class Store:
    """Folders that are pushed as versions of the model `m`."""

    def __init__(self, database: Engine, keeper: Engine, folder: Path) -> None:
        self.database, self.keeper, self.folder = database, keeper, folder
        self.blobs = FolderBlobs(folder / "files")

    def announce(self, version: str, **files: bytes) -> Manifest:
        """Registers a folder, as a push does before it stores what the store doesn't have."""
        manifest = folder.read(signing.write_tree(self.folder / version, files))
        with self.database.begin() as tx:
            artifacts.add(tx, manifest.digest, manifest.as_json(), manifest.size, "cli")
            artifacts.begin_push(tx, manifest.digest)
        return manifest

    def push(self, version: str, **files: bytes) -> Manifest:
        manifest = self.announce(version, **files)
        push(self.blobs, self.folder / version, manifest)
        transact(self.database, artifacts.mark_stored, manifest.digest)
        self.register(version, manifest)
        return manifest

    def register(self, version: str, manifest: Manifest) -> None:
        with self.database.begin() as tx:
            self.registrar(tx).push("m", version, ENTRY, manifest.digest)

    def registrar(self, tx: db.Tx) -> Registrar:
        return Registrar(tx, Registry([]), "cli", partial(record, tx))

    def retire(self, version: str) -> None:
        with self.database.begin() as tx:
            self.registrar(tx).retire("m", version)

    def age(self, days: int) -> None:
        """Makes all that was pushed and retired so much older."""
        with self.database.begin() as tx:
            for table, column in (("artifacts", "pushed_at"), ("model_versions", "retired_at")):
                older = f"{column} = {column} - make_interval(days => {days})"
                tx.execute(text(f"UPDATE {table} SET {older}"))

    def mark(self) -> int:
        return transact(self.keeper, removal.mark, GRACE)

    def erase(self) -> int:
        return transact(self.keeper, removal.erase, self.blobs.delete)

    def has(self, manifest: Manifest, name: str) -> bool:
        return self.blobs.size(blob_key(manifest.digests[name])) is not None


@pytest.fixture
def store(database: Engine, keeper: Engine, tmp_path: Path) -> Store:
    return Store(database, keeper, tmp_path)


def test_contents_go_that_only_versions_retired_long_ago_have(store: Store) -> None:
    old, new = store.push("1", a=b"shared", b=b"old"), store.push("2", a=b"shared", b=b"new")
    store.retire("1")
    store.age(29)
    assert store.mark() == store.erase() == 0
    store.age(2)
    assert (store.mark(), store.erase(), store.mark(), store.erase()) == (1, 1, 0, 0)
    assert (store.has(old, "b"), store.has(old, "a"), store.has(new, "b")) == (False, True, True)
    with pytest.raises(Conflict, match="were removed: push its folder again"):
        store.register("1", old)
    assert store.push("1", a=b"shared", b=b"old") == old
    assert store.has(old, "b")
    assert store.mark() == 0


def test_a_version_with_an_unfinished_job_keeps_its_contents(store: Store) -> None:
    manifest = store.push("1", a=b"1")
    models = Registry([Model("m", "1", "echo")])
    submit(store.database, models, "default", Order("m"), array=["a"])
    with store.database.begin() as tx:
        store.registrar(tx).retire("m", "1")
        assert len(store.registrar(tx).unfinished_jobs("m", "1")) == 1
    store.age(31)
    assert store.mark() == 0
    with store.database.begin() as tx:
        tx.execute(text("UPDATE slices SET state = 'done', worker = NULL"))
        tx.execute(text("UPDATE jobs SET state = 'cancelled', finished_at = now()"))
    assert (store.mark(), store.erase()) == (1, 1)
    assert not store.has(manifest, "a")


def test_a_push_at_the_same_moment_loses_nothing(store: Store) -> None:
    first = store.push("1", a=b"shared", b=b"old")
    store.retire("1")
    store.age(31)
    assert store.mark() == 1
    second = store.announce("2", a=b"shared")  # which looked at the store, and found all it needs
    assert store.erase() == 1
    assert store.has(second, "a")
    assert not store.has(first, "b")
    store.push("3", c=b"again")
    store.retire("3")
    store.age(31)
    assert store.mark() == 1
    third = store.announce("3", c=b"again")  # the marked one itself: it is not removed any more
    assert store.erase() == 0
    assert store.has(third, "c")
