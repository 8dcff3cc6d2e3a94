"""Jobs by what people look for: pages of them, how many there are of each state, which to act on.

No index serves these but those that there are: of 100,000 jobs a filter that finds nothing takes
20 ms (`millrace bench dashboard`), and one more index would be paid for by every submission.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs import ids
from jobs.states import JobState
from jobs.store.db import Tx
from jobs.store.jobs.read import counted
from jobs.store.tenancy import EVERYBODY

MOST_COUNTED = 100_000
"""Of the jobs that a filter finds: how many more there are is not asked."""

_UNSUCCESSFUL = "finished_at IS NOT NULL AND (n_succeeded < total OR total = 0)"
_PREFIXES = ("job", "batch", "msgbatch")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs; what is empty or None asks for nothing. since, until: when they were handed in,
    `until` excluded, by the time in their ids; text: a job's id, or words that all stand in its
    metadata, keys or values, in any case; unsuccessful: those that ended with items that did not
    succeed; ids: these alone."""

    states: tuple[JobState, ...] = ()
    model: str = ""
    version: str = ""
    since: datetime | None = None
    until: datetime | None = None
    text: str = ""
    unsuccessful: bool = False
    ids: tuple[UUID, ...] = ()

    def conditions(self) -> tuple[list[str], dict[str, Any]]:
        """SQL that was written here, and the values that it names."""
        found: dict[str, Any] = {}
        parts = []
        for part, name, value in (
            ("state = ANY(:states)", "states", list(self.states)),
            ("model = :model", "model", self.model),
            ("version = :version", "version", self.version),
            ("id >= :since", "since", self.since and ids.earliest(self.since)),
            ("id < :until", "until", self.until and ids.earliest(self.until)),
            ("id = ANY(:ids)", "ids", list(self.ids)),
        ):
            if value:
                parts.append(part)
                found[name] = value
        if self.unsuccessful:
            parts.append(_UNSUCCESSFUL)
        more, values = _text(self.text)
        return parts + more, found | values


def _text(asked: str) -> tuple[list[str], dict[str, Any]]:
    if id := ids.parse(_PREFIXES, asked.strip()):
        return ["id = :its_id"], {"its_id": id}
    words = asked.split()
    parts = [f"metadata ILIKE :word_{n}" for n in range(len(words))]
    return parts, {f"word_{n}": f"%{_literal(word)}%" for n, word in enumerate(words)}


def _literal(word: str) -> str:
    """As LIKE takes it for itself."""
    for special in "\\%_":
        word = word.replace(special, f"\\{special}")
    return word


def _where(tenant: str, filter: Filter, *more: str) -> tuple[str, dict[str, Any]]:
    parts, values = filter.conditions()
    if tenant != EVERYBODY:
        parts.append("tenant_id = :tenant")
        values["tenant"] = tenant
    parts += more
    return (f"WHERE {' AND '.join(parts)}" if parts else ""), values


def page(
    tx: Tx, tenant: str, filter: Filter, *, after: UUID | None = None, limit: int
) -> list[RowMapping]:
    """Newest first, with their counts; after: the id of the last one of the page before. tenant:
    one, or EVERYBODY."""
    where, values = _where(tenant, filter, *(["id < :after"] if after else []))
    query = counted(f"SELECT * FROM jobs {where} ORDER BY id DESC LIMIT :limit")
    return list(tx.execute(query, values | {"after": after, "limit": limit}).mappings())


def counts(
    tx: Tx, tenant: str, filter: Filter, made_before: datetime | None = None
) -> Mapping[JobState, int]:
    """How many there are of each state; made_before: of those that were there at that time. Exact,
    up to MOST_COUNTED in all; beyond that, of one more than these."""
    where, values = _where(tenant, filter, *(["created_at <= :made_before"] if made_before else []))
    query = text(f"""
        SELECT state, count(*) FROM (SELECT state FROM jobs {where} LIMIT {MOST_COUNTED + 1}) AS j
        GROUP BY state
    """)
    found = tx.execute(query, values | {"made_before": made_before})
    return {row[0]: row[1] for row in found}


def now(tx: Tx) -> datetime:
    """By the clock that tells when jobs were there."""
    found: datetime = tx.scalars(text("SELECT now()")).one()
    return found


def matching_ids(
    tx: Tx, tenant: str, filter: Filter, made_before: datetime, *, after: UUID | None, limit: int
) -> list[UUID]:
    """Ids of those that were there at that time, the newest first, from `after` on."""
    more = ["created_at <= :made_before", *(["id < :after"] if after else [])]
    where, values = _where(tenant, filter, *more)
    query = text(f"SELECT id FROM jobs {where} ORDER BY id DESC LIMIT :limit")
    values |= {"made_before": made_before, "after": after, "limit": limit}
    return list(tx.scalars(query, values))
