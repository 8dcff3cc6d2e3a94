"""API keys in the database: their hashes, what they allow, until when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Select, func, insert, literal, select, text, update

from jobs import api_keys, ids
from jobs.api_keys import NewKey
from jobs.errors import Conflict, NotFound
from jobs.identity import Role, Scope
from jobs.store import queries
from jobs.store.db import Tx, notify_keys
from jobs.store.tables import api_keys as keys
from jobs.store.tables import limits
from jobs.store.tenants import tenants

_RECORD_USE_S = 60.0
"""Shortest time between two updates of a key's `last_used_at`."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key without its hash."""

    id: UUID  #: shown as `key_…`
    tenant_id: str  #: tenant that it authenticates
    name: str  #: free text; empty once its tenant is erased
    hint: str  #: first characters of the secret; empty once its tenant is erased
    role: Role  #: role of its callers
    scopes: list[Scope]  #: scopes that were granted
    created_at: datetime  #: time of creation
    expires_at: datetime | None  #: None: never
    revoked_at: datetime | None  #: None: not revoked
    last_used_at: datetime | None  #: precise to a minute
    replaced_by: UUID | None  #: key that it was rotated to
    read_at: datetime  #: time of this reading, by the database's clock

    @property
    def is_expired(self) -> bool:
        """True once its time is up."""
        return self.expires_at is not None and self.expires_at <= self.read_at

    @property
    def lives_s(self) -> float | None:
        """Seconds from its creation to its end; None: it never expires."""
        if self.expires_at is None:
            return None
        return (self.expires_at - self.created_at).total_seconds()


@dataclass(frozen=True, slots=True)
class UsableKey:
    """A key that a caller has just presented."""

    id: UUID  #: shown as `key_…`
    tenant_id: str  #: tenant that it authenticates
    role: Role  #: role of its callers
    scopes: list[Scope]  #: scopes that were granted
    left_s: float | None  #: seconds until it expires; None: never
    is_use_due: bool  #: its use should be recorded


_COLUMNS = [*queries.columns(KeyRow, keys), func.now()]


def create(tx: Tx, asked: NewKey) -> KeyRow:
    """Makes the key, and its tenant with its first one. Raises Invalid."""
    api_keys.validate(asked)
    tenants.ensure(tx, asked.tenant)
    values = {
        "id": ids.new(),
        "tenant_id": asked.tenant,
        "name": asked.name,
        "hint": api_keys.key_hint(asked.secret),
        "hash": api_keys.hash_key(asked.secret),
        "role": asked.role,
        "scopes": asked.granted,
        "expires_at": queries.in_s(asked.ttl_s),
    }
    row = tx.execute(insert(keys).values(values).returning(*_COLUMNS)).one()
    notify_keys(tx, asked.tenant)
    return KeyRow(*row)


def get(tx: Tx, tenant: str, id: UUID | None, *, lock: bool = False) -> KeyRow:
    """Returns a key of this tenant, or anybody's for EVERYBODY. Raises NotFound."""
    query: Select[tuple[object, ...]] = select(*_COLUMNS).where(
        keys.c.id == id, queries.is_own_or_all(keys, tenant)
    )
    row = queries.one(tx, KeyRow, query.with_for_update() if lock else query)
    if row is None:
        raise NotFound(f"there is no key {ids.show('key', id) if id else 'of that id'}")
    return row


def page(tx: Tx, tenant: str, after: UUID | None, limit: int) -> Sequence[KeyRow]:
    """Lists keys, newest first; `after` is the id of the last one of the page before."""
    query = select(*_COLUMNS).where(queries.is_own_or_all(keys, tenant))
    return queries.many(tx, KeyRow, queries.page(query, keys.c.id, after, limit))


def rotate(tx: Tx, tenant: str, id: UUID | None, overlap_s: float) -> tuple[KeyRow, str]:
    """Replaces a key; returns the new one and its secret.

    The old one stays valid for `overlap_s` at most. The new one lives as long as the old one was
    to, with the same limits. Raises NotFound, Conflict.
    """
    old = get(tx, tenant, id, lock=True)
    if old.revoked_at or old.is_expired or old.replaced_by:
        what = "was revoked" if old.revoked_at else "has expired" if old.is_expired else ""
        raise Conflict(f"the key {what or 'was rotated before'}; make a new one")
    asked = NewKey(old.tenant_id, old.name, old.role, frozenset(old.scopes), old.lives_s)
    new = create(tx, asked)
    ends_at = func.least(keys.c.expires_at, queries.in_s(overlap_s))
    tx.execute(update(keys).where(keys.c.id == id).values(replaced_by=new.id, expires_at=ends_at))
    _copy_limits(tx, old, new)
    return new, asked.secret


def _copy_limits(tx: Tx, old: KeyRow, new: KeyRow) -> None:
    kept = [column for column in limits.c if column.name != "key_id"]
    query = select(*kept, literal(ids.show("key", new.id))).where(
        limits.c.tenant_id == old.tenant_id, limits.c.key_id == ids.show("key", old.id)
    )
    names = [*(column.name for column in kept), "key_id"]
    tx.execute(insert(limits).from_select(names, query))


def revoke(tx: Tx, tenant: str, id: UUID | None) -> None:
    """Ends a key for good and at once. Raises NotFound."""
    row = get(tx, tenant, id, lock=True)
    tx.execute(
        update(keys).where(keys.c.id == id, keys.c.revoked_at.is_(None))
        .values(revoked_at=func.now())
    )  # fmt: skip
    notify_keys(tx, row.tenant_id)


# A credential is looked up before anybody knows whose it is, when row-level security shows no row:
# functions of the tables' owner do it. Written out: their rows are no table of ours.
_FIND = text("""
    SELECT id, tenant_id, role, scopes,
           extract(epoch FROM expires_at - now())::float8 AS left_s,
           coalesce(last_used_at < now() - make_interval(secs => :record_s), true) AS is_use_due
    FROM find_key(:hash)
    WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
""")


def find(tx: Tx, hash: bytes) -> UsableKey | None:
    """Returns the key with this hash if it is valid now."""
    return queries.one(tx, UsableKey, _FIND, {"hash": hash, "record_s": _RECORD_USE_S})


def record_use(tx: Tx, id: UUID) -> None:
    """Sets the time of a key's last use."""
    tx.execute(select(func.use_key(id)))


def any_key(tx: Tx) -> bool:
    """Returns True if a key was ever made."""
    return bool(tx.scalar(select(func.any_key())))
