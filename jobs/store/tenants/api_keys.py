"""API keys in the database: their hashes, what they allow, until when."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import RowMapping, TextClause, text

from jobs import api_keys, ids
from jobs.api_keys import NewKey
from jobs.errors import Conflict, NotFound
from jobs.store.db import Tx, notify_keys
from jobs.store.tenants import tenants

_INSERT = text("""
    INSERT INTO api_keys (id, tenant_id, name, hint, hash, role, scopes, expires_at)
    VALUES (:id, :tenant, :name, :hint, :hash, :role, :scopes,
            now() + make_interval(secs => CAST(:lives_s AS float8)))
    RETURNING *
""")
_ONE = """
    SELECT *, expires_at <= now() AS expired,
           extract(epoch FROM expires_at - created_at)::float8 AS lives_s
    FROM api_keys WHERE id = :id AND (tenant_id = :tenant OR :tenant = '*')
"""
_GET, _LOCK = text(_ONE), text(_ONE + "FOR UPDATE")
_PAGE = text("""
    SELECT * FROM api_keys
    WHERE (tenant_id = :tenant OR :tenant = '*') AND (CAST(:after AS uuid) IS NULL OR id < :after)
    ORDER BY id DESC LIMIT :limit
""")
_REPLACE = text("""
    UPDATE api_keys
    SET replaced_by = :by,
        expires_at = least(expires_at, now() + make_interval(secs => :overlap_s))
    WHERE id = :id
""")
_SAME_LIMITS = text("""
    INSERT INTO limits (tenant_id, model, key_id, requests_per_s, tokens_per_s, calls_in_flight,
                        queued_items, stored_bytes, job_items)
    SELECT tenant_id, model, :new, requests_per_s, tokens_per_s, calls_in_flight,
           queued_items, stored_bytes, job_items
    FROM limits WHERE tenant_id = :tenant AND key_id = :old
""")
_REVOKE = text("UPDATE api_keys SET revoked_at = now() WHERE id = :id AND revoked_at IS NULL")
_FIND = text("""
    SELECT id, tenant_id, role, scopes,
           extract(epoch FROM expires_at - now())::float8 AS left_s,
           coalesce(last_used_at < now() - make_interval(secs => :note_s), true) AS to_note
    FROM find_key(:hash)
    WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
""")
_USE = text("SELECT use_key(:id)")
_ANY = text("SELECT any_key()")

_NOTE_S = 60.0
"""`last_used_at` is written at most so often for a key."""


def create(tx: Tx, asked: NewKey) -> RowMapping:
    """Makes the key, and its tenant with its first one. Raises Invalid."""
    api_keys.check(asked)
    tenants.ensure(tx, asked.tenant)
    values = {
        "id": ids.new(),
        "tenant": asked.tenant,
        "name": asked.name,
        "hint": api_keys.hint_of(asked.secret),
        "hash": api_keys.hash_of(asked.secret),
        "role": asked.role,
        "scopes": asked.granted,
        "lives_s": asked.lives_s,
    }
    row = tx.execute(_INSERT, values).mappings().one()
    notify_keys(tx, asked.tenant)
    return row


def get(tx: Tx, tenant: str, id: UUID | None) -> RowMapping:
    """A key of this tenant, or anybody's for EVERYBODY. Raises NotFound."""
    return _one(tx, _GET, tenant, id)


def _one(tx: Tx, query: TextClause, tenant: str, id: UUID | None) -> RowMapping:
    row = tx.execute(query, {"tenant": tenant, "id": id}).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no key {ids.show('key', id) if id else 'of that id'}")
    return row


def page(tx: Tx, tenant: str, after: UUID | None, limit: int) -> Sequence[RowMapping]:
    """Newest first; `after` is the id of the last one of the page before."""
    values = {"tenant": tenant, "after": after, "limit": limit}
    return tx.execute(_PAGE, values).mappings().all()


def rotate(tx: Tx, tenant: str, id: UUID | None, overlap_s: float) -> tuple[RowMapping, str]:
    """A new key in place of this one, which goes on for `overlap_s` at most, and the new one's
    secret. It lives as long as the old one was to, and is held to the same limits. Raises NotFound,
    Conflict."""
    old = _one(tx, _LOCK, tenant, id)
    if old["revoked_at"] or old["expired"] or old["replaced_by"]:
        what = "was revoked" if old["revoked_at"] else "has expired" if old["expired"] else ""
        raise Conflict(f"the key {what or 'was rotated before'}; make a new one")
    asked = NewKey(
        old["tenant_id"], old["name"], old["role"], frozenset(old["scopes"]), old["lives_s"]
    )
    new = create(tx, asked)
    tx.execute(_REPLACE, {"id": id, "by": new["id"], "overlap_s": overlap_s})
    shown = {"old": ids.show("key", old["id"]), "new": ids.show("key", new["id"])}
    tx.execute(_SAME_LIMITS, shown | {"tenant": old["tenant_id"]})
    return new, asked.secret


def revoke(tx: Tx, tenant: str, id: UUID | None) -> None:
    """For ever, and at once. Raises NotFound."""
    row = _one(tx, _LOCK, tenant, id)
    tx.execute(_REVOKE, {"id": id})
    notify_keys(tx, row["tenant_id"])


def find(tx: Tx, hash: bytes) -> RowMapping | None:
    """The key with this hash, if it is good now: id, tenant_id, role, scopes; left_s: until it
    expires, None: never; to_note: its use should be noted."""
    return tx.execute(_FIND, {"hash": hash, "note_s": _NOTE_S}).mappings().one_or_none()


def record_use(tx: Tx, id: UUID) -> None:
    tx.execute(_USE, {"id": id})


def any_key(tx: Tx) -> bool:
    """Whether a key was ever made."""
    found: bool = tx.scalars(_ANY).one()
    return found
