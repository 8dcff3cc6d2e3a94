"""Rows of tenants' files; their bytes lie in the blob store (jobs/usecases/tenant_files.py)."""

import builtins
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete as delete_from
from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from jobs import clock, ids
from jobs.store import queries
from jobs.store.db import Tx, lock
from jobs.store.tables import files

_f = files.c


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file whose bytes are stored."""

    id: UUID  #: shown as `file-…`
    tenant_id: str  #: its tenant
    purpose: str  #: `batch`, `batch_output`, …
    filename: str  #: name that its client gave it
    bytes: int  #: size
    sha256: builtins.bytes  #: digest of its bytes
    key: str  #: place in the blob store
    created_at: datetime  #: time of its completion
    expires_at: datetime | None  #: time from which it is gone; None: never


_COLUMNS = queries.columns(FileRow, files)
_IS_THERE = _f.complete & queries.is_live(files)


def reserve(
    tx: Tx, tenant: str, id: UUID, *, purpose: str, filename: str, key: str, key_id: str,
    within_s: float,
) -> None:  # fmt: skip
    """Inserts the row of a file whose bytes are about to be stored; again for another try.

    Nobody sees it until it is complete; it expires, with what was stored of it, unless that happens
    within_s. key_id: API key (`key_…`) of the request.
    """
    values = {"id": id, "tenant_id": tenant, "purpose": purpose, "filename": filename}
    new = insert(files).values(
        **values, bytes=0, sha256=b"", key=key, key_id=key_id, complete=False,
        expires_at=queries.in_s(within_s),
    )  # fmt: skip
    tx.execute(
        new.on_conflict_do_update(
            index_elements=["id"],
            set_={"expires_at": new.excluded.expires_at},
            where=~_f.complete,
        )
    )


def complete(
    tx: Tx, tenant: str, id: UUID, *, bytes: int, sha256: bytes, expires_in_s: float | None
) -> FileRow | None:
    """Makes a reserved file visible; None: it has expired and is gone."""
    ends_at = queries.in_s(expires_in_s)
    its = update(files).where(_f.id == id, queries.is_own(files), ~_f.complete)
    done = its.values(
        bytes=bytes, sha256=sha256, created_at=func.now(), complete=True, expires_at=ends_at
    )
    return queries.one(tx, FileRow, done.returning(*_COLUMNS), {"tenant": tenant})


def abandon(tx: Tx, tenant: str, id: UUID) -> None:
    """Lets a reserved file expire now."""
    its = update(files).where(_f.id == id, queries.is_own(files), ~_f.complete)
    tx.execute(its.values(expires_at=func.now()), {"tenant": tenant})


def get(tx: Tx, tenant: str, id: UUID) -> FileRow | None:
    """Returns a file that has not expired, or None."""
    query = select(*_COLUMNS).where(_f.id == id, queries.is_own(files), _IS_THERE)
    return queries.one(tx, FileRow, query, {"tenant": tenant})


_MADE_WITHIN_S = 900.0
"""Longer than all tries of a package together."""


def lock_upload(tx: Tx, tenant: str, sha256: builtins.bytes) -> None:
    """Waits for other uploads of the same bytes, until the transaction ends."""
    lock(tx, f"upload of {tenant}: {sha256.hex()}")


def find_upload(
    tx: Tx, tenant: str, *, purpose: str, filename: str, sha256: builtins.bytes, key_id: str,
    within_s: float,
) -> FileRow | None:  # fmt: skip
    """Returns the file that the same request has stored just now, or None. within_s: longest time
    for storing the bytes."""
    since = ids.earliest(clock.now() - timedelta(seconds=within_s + _MADE_WITHIN_S))
    asked = queries.equal(files, purpose=purpose, filename=filename, key_id=key_id)
    its = (
        queries.is_own(files),
        _IS_THERE,
        _f.id > since,
        _f.created_at > queries.in_s(-_MADE_WITHIN_S),
    )
    query = select(*_COLUMNS).where(*its, asked, _f.sha256 == sha256).order_by(_f.id.desc())
    return queries.one(tx, FileRow, query.limit(1), {"tenant": tenant})


def page(
    tx: Tx, tenant: str, *, purpose: str | None, after: UUID | None, limit: int, newest: bool = True
) -> list[FileRow]:
    """Lists files, newest or oldest first; after: the id of the last one of the page before."""
    query = select(*_COLUMNS).where(
        queries.is_own(files), _IS_THERE, queries.equal(files, purpose=purpose)
    )
    page = queries.page(query, _f.id, after, limit, ascending=not newest)
    return queries.many(tx, FileRow, page, {"tenant": tenant})


def delete(tx: Tx, tenant: str, id: UUID) -> bool:
    """Lets a file expire now: its row and its blob go together. False: there is none."""
    its = update(files).where(_f.id == id, queries.is_own(files), _IS_THERE)
    return tx.execute(its.values(expires_at=func.now()), {"tenant": tenant}).rowcount > 0


def delete_expired(tx: Tx, at: datetime, most: int = 100) -> Collection[str]:
    """Deletes rows of files that expired by then.

    Returns the keys of their blobs, which the caller deletes before it commits.
    """
    expired = select(_f.id).where(_f.expires_at <= at).order_by(_f.expires_at).limit(most)
    some = _f.id.in_(expired.with_for_update(skip_locked=True))
    return tx.scalars(delete_from(files).where(some).returning(_f.key)).all()
