"""Artifacts: manifests by digest, and their signatures. The bytes lie in the blob store."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import Update, case, func, select, update
from sqlalchemy.dialects.postgresql import insert

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.registry_tables import artifact_signatures as signatures
from jobs.store.registry_tables import artifacts as table

State = Literal["stored", "erasing", "erased"]


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """One artifact."""

    digest: str  #: `sha256:` and 64 hexadecimal digits
    manifest: str  #: JSON: {"files": [{"path", "size", "sha256"}]}
    bytes: int  #: of all files
    state: State  #: of the contents in the blob store
    base: str  #: of an adapter: its base's artifact, or name@version; "": it is no adapter
    created_at: datetime
    created_by: str  #: as actor of the audit log


@dataclass(frozen=True, slots=True)
class SignatureRow:
    """One signature of an artifact."""

    id: int
    digest: str
    bundle: str  #: JSON: a Sigstore bundle
    added_at: datetime
    added_by: str  #: as actor of the audit log


def add(tx: Tx, digest: str, manifest: str, bytes: int, actor: str, base: str = "") -> bool:
    """Stores an artifact's manifest; returns False where it is there already. base: of an
    adapter."""
    values = {"digest": digest, "manifest": manifest, "bytes": bytes, "base": base}
    values["created_by"] = actor
    added = insert(table).values(**values).on_conflict_do_nothing()
    return tx.execute(added).rowcount > 0


def begin_push(tx: Tx, digest: str) -> None:
    """Records that contents of an artifact are being stored: keepers leave them alone for a day."""
    state = case((table.c.state == "erasing", "erased"), else_=table.c.state)
    tx.execute(_own(digest).values(pushed_at=func.now(), state=state))


def mark_stored(tx: Tx, digest: str) -> None:
    """Records that all contents of an artifact are in the blob store."""
    tx.execute(_own(digest).values(state="stored"))


def _own(digest: str) -> Update:
    return update(table).where(table.c.digest == digest)


def described(base: str) -> str:
    """Returns what an artifact with this base is, in words."""
    return f"an adapter of {base}" if base else "a model"


def get(tx: Tx, digest: str) -> ArtifactRow | None:
    """Returns an artifact, or None."""
    query = select(*queries.columns(ArtifactRow, table)).where(table.c.digest == digest)
    return queries.one(tx, ArtifactRow, query)


def sign(tx: Tx, digest: str, bundle: str, actor: str) -> None:
    """Adds a signature, unless the artifact has the same one."""
    same = signatures.c.digest == digest, signatures.c.bundle == bundle
    if tx.scalar(select(signatures.c.id).where(*same).limit(1)) is None:
        tx.execute(insert(signatures).values(digest=digest, bundle=bundle, added_by=actor))


def signatures_of(tx: Tx, digest: str) -> list[SignatureRow]:
    """Returns the signatures of an artifact, those added first at the beginning."""
    query = select(*queries.columns(SignatureRow, signatures)).where(signatures.c.digest == digest)
    return queries.many(tx, SignatureRow, query.order_by(signatures.c.id))
