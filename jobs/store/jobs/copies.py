"""Items of a job as lines of another one: read in chunks, never whole in memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson
from sqlalchemy import Engine as Database
from sqlalchemy import text

from jobs.errors import Conflict
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.jobs.read import JobRow
from jobs.store.tenancy import acting

_CHUNK_ITEMS = 500


@dataclass(frozen=True, slots=True)
class CopiedItem:
    """An item as its client sent it."""

    custom_id: str | None  #: id that its client gave it
    params: str | None  #: JSON object; None: those of its job
    input: str  #: JSON, or a reference to the blob store

    def as_line(self) -> bytes:
        """Returns the line of a new job. input: must not be a reference."""
        fields: dict[str, object] = {"input": orjson.Fragment(self.input)}
        if self.custom_id is not None:
            fields["custom_id"] = self.custom_id
        if self.params is not None:
            fields["params"] = orjson.Fragment(self.params)
        return orjson.dumps(fields)


# Written out for OFFSET 0: one look at the results' key for each item, as in `claim`.
_ITEMS = """
    SELECT i.custom_id, i.params, i.input FROM items i
    WHERE i.job_id = :job AND i.tenant_id = :tenant AND i.seq > :after AND i.seq <= :until {unless}
    ORDER BY i.seq
"""
_ALL = text(_ITEMS.format(unless=""))
_UNSUCCESSFUL = text(
    _ITEMS.format(
        unless="""AND NOT EXISTS (
        SELECT 1 FROM results r WHERE r.job_id = i.job_id AND r.seq = i.seq
        AND r.outcome = 'succeeded' OFFSET 0)"""
    )
)


def items(database: Database, job: JobRow, *, unsuccessful: bool) -> Iterator[CopiedItem]:
    """Yields a job's items in their order; those alone that did not succeed, where asked for.

    Each chunk is read in a transaction of its own. Raises Conflict where items are gone meanwhile,
    or a retry made some succeed.
    """
    expected = job.failed + job.cancelled + job.expired if unsuccessful else job.total
    found = 0
    for after in range(-1, job.total - 1, _CHUNK_ITEMS):
        until = min(after + _CHUNK_ITEMS, job.total - 1)
        with acting(database, job.tenant_id) as tx:
            some = page(tx, job, after, until, unsuccessful)
        found += len(some)
        yield from some
    if found != expected:
        raise Conflict(
            f"the job has changed: {found:,} items are there, where {expected:,} were to be "
            "submitted again; try once more"
        )


def page(tx: Tx, job: JobRow, after: int, until: int, unsuccessful: bool) -> list[CopiedItem]:
    """Returns the items after one seq up to another one."""
    values = {"job": job.id, "tenant": job.tenant_id, "after": after, "until": until}
    query = _UNSUCCESSFUL if unsuccessful else _ALL
    return list(queries.many(tx, CopiedItem, query, values))
