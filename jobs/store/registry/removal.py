"""Removal of contents of artifacts from the blob store, once only retired versions have them. Their
rows stay: a push of the same folder stores the contents again.

Both steps hold the lock of the registry, and a push announces its artifact under it before it looks
at what is stored: contents that it relies on are either left alone or gone before it looks.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta

import orjson
from sqlalchemy import func, or_, select, update

from jobs.artifacts.manifest import Manifest
from jobs.artifacts.push import blob_key
from jobs.store.db import Tx
from jobs.store.registry import snapshot, versions
from jobs.store.registry.versions import VersionRow
from jobs.store.registry_tables import artifacts as table
from jobs.store.registry_tables import model_versions

_PUSH = timedelta(days=1)
"""Longest time that a push takes to store what it has announced."""


def mark(tx: Tx, grace: timedelta) -> int:
    """Marks artifacts whose versions have all been retired for so long, and have no unfinished job;
    returns their number. The transaction sees all tenants."""
    versions.lock_registry(tx)
    unused = _unused(tx, grace)
    old = table.c.pushed_at < func.now() - max(grace, _PUSH)
    its = update(table).where(table.c.digest.in_(unused), table.c.state == "stored", old)
    return tx.execute(its.values(state="erasing")).rowcount if unused else 0


def _unused(tx: Tx, grace: timedelta) -> set[str]:
    """Returns the artifacts that only versions have which nothing needs any more."""
    before = model_versions.c.retired_at < func.now() - grace
    retired = select(model_versions.c.name, model_versions.c.version).where(before)
    past = {(name, version) for name, version in tx.execute(retired)}
    busy = {(one.name, one.version) for one in snapshot.read_with_unfinished(tx).unfinished}
    used, unused = set[str](), set[str]()
    for row in versions.all_of(tx):
        key = row.name, row.version
        is_past = row.state == "retired" and key in past and key not in busy
        (unused if is_past else used).update(_artifacts(row))
    return unused - used


def _artifacts(row: VersionRow) -> Iterator[str]:
    """Yields the artifacts of a version and of its adapters."""
    if row.artifact:
        yield row.artifact
    for adapter in orjson.loads(row.entry).get("adapters", []):
        if digest := adapter.get("artifact"):
            yield digest


def erase(tx: Tx, delete: Callable[[str], None]) -> int:
    """Deletes the contents of one marked artifact that no other one has; returns 1, or 0 where
    none is marked. delete: of a blob by its key; harmless to repeat."""
    versions.lock_registry(tx)
    marked = select(table.c.digest, table.c.manifest).where(table.c.state == "erasing").limit(1)
    found = tx.execute(marked).one_or_none()
    if found is None:
        return 0
    pushing = table.c.pushed_at > func.now() - _PUSH
    others = select(table.c.manifest).where(
        table.c.digest != found.digest, or_(table.c.state == "stored", pushing)
    )
    kept = {digest for text in tx.scalars(others) for digest in Manifest.from_json(text).blobs}
    for digest in Manifest.from_json(found.manifest).blobs.keys() - kept:
        delete(blob_key(digest))
    tx.execute(update(table).where(table.c.digest == found.digest).values(state="erased"))
    return 1
