"""The hash chain of the audit log: its check.

The database links each entry as its transaction commits (migration 0011): a row in `audit_chain`
has its number, its id, and the SHA-256 of the hash before it and of the entry's values. The hashes
are computed again here, not by the database that is being checked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from sqlalchemy import text

from jobs.store import queries
from jobs.store.db import Tx, disable_statement_timeout

_PAGE = 1000  #: links at a time

# Left join: of an entry that was deleted, the link is still there. An epoch as text has six digits
# after its point whatever the session's time zone and format of dates.
_LINKS = text("""
    SELECT c.n, c.entry, c.hash, a.id, extract(epoch FROM a.at)::text, a.tenant_id, a.actor,
           a.act, a.target, a.detail, a.request_id
    FROM (SELECT * FROM audit_chain WHERE n > :after ORDER BY n LIMIT :limit) AS c
    LEFT JOIN audit a ON a.id = c.entry
    ORDER BY c.n
""")
_UNLINKED = text("""
    SELECT count(*), min(id) FROM audit a
    WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.entry = a.id)
""")


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """Result of a check."""

    entries: int  #: entries that follow one another, from the first on
    first: bytes  #: hash of the first one; b"": there is none
    last: bytes  #: hash of the last one; to be kept elsewhere
    problem: str = ""  #: first fault that was found; "": none


class _Broken(Exception):
    """A link that doesn't follow from those before it."""


@dataclass(slots=True)
class _Chain:
    """The links so far, each checked as it is added."""

    entries: int = 0
    first: bytes = b""
    before: bytes = b""  #: hash before the last one
    last: bytes = b""
    entry: int | None = None  #: id of the last one
    has_head: bool = False  #: the hash that was looked for is among them

    def add(self, n: int, entry: int, hash: bytes, values: Sequence[str] | None) -> None:
        """Adds a link. values: those of its entry; None: it is gone. Raises _Broken."""
        if n != self.entries + 1:
            raise _Broken(f"{_after(self.entry)} was removed, with its link: link {n} follows")
        if values is None:
            raise _Broken(f"entry {entry} was removed")
        if link_hash(self.last, values) != hash:
            if self.entries and link_hash(self.before, values) == hash:
                raise _Broken(f"entry {self.entry} was inserted: entry {entry} followed without it")
            raise _Broken(
                f"entry {entry} was changed, or {_after(self.entry)} was removed: its values and "
                "the hash before it don't give its hash"
            )
        self.entries, self.entry = n, entry
        self.before, self.last = self.last, hash
        self.first = self.first or hash


def _after(entry: int | None) -> str:
    return "the first entry" if entry is None else f"the entry after {entry}"


def link_hash(previous: bytes, values: Sequence[str]) -> bytes:
    """Returns the hash of an entry: of the hash before it, and of each value as UTF-8 after its
    length in bytes and a colon."""
    content = sha256(previous)
    for value in map(str.encode, values):
        content.update(b"%d:%b" % (len(value), value))
    return content.digest()


def verify(tx: Tx, head: bytes = b"") -> ChainCheck:
    """Checks the whole chain, in constant memory; for the owner of the tables.

    head: a hash that an earlier check gave; it must be one of the chain's.
    """
    disable_statement_timeout(tx)
    chain = _Chain(has_head=not head)
    try:
        for n, entry, hash, values in _links(tx):
            chain.add(n, entry, hash, values)
            chain.has_head = chain.has_head or hash == head
        problem = _unlinked(tx)
    except _Broken as broken:
        problem = str(broken)
    if not problem and not chain.has_head:
        problem = (
            f"no entry has the hash {head.hex()}: {_after(chain.entry)} was removed, with all that "
            "followed, or the chain was written anew"
        )
    return ChainCheck(chain.entries, chain.first, chain.last, problem)


def _links(tx: Tx) -> Iterator[tuple[int, int, bytes, Sequence[str] | None]]:
    """Yields (number, id, hash, values of its entry or None) of each link, in their order."""
    after = -(1 << 63)
    while True:
        page = tx.execute(_LINKS, {"after": after, "limit": _PAGE}).all()
        for n, entry, hash, id, *values in page:
            yield n, entry, bytes(hash), None if id is None else [*map(str, (id, *values))]
        if len(page) < _PAGE:
            return
        after = page[-1].n


def _unlinked(tx: Tx) -> str:
    [(count, first)] = queries.many(tx, lambda *row: row, _UNLINKED)
    if not count:
        return ""
    return f"entry {first} is not in the chain ({count} such): it was inserted past the trigger"
