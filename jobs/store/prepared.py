"""Prepared inputs of items: their places in Redis or the blob store, and slices that pass on from
the queue of their preparation to that of their model.

Rows are written under the lease of the slice, as results are: a lost lease writes nothing. The
table is not logged: after a crash of the database it is empty, and device workers prepare what has
passed on themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from jobs.models.model import Model
from jobs.store.db import Tx
from jobs.store.queue import claim
from jobs.store.queue import settle as settlement
from jobs.store.queue.claim import InputRow, Lease
from jobs.store.queue.finish import SliceKey, key_arrays
from jobs.store.queue.settle import Attempt, Result

MARK = "#"
"""Begins the place of a prepared input where it stands in place of the input: no JSON does so."""

MOST_FORGOTTEN = 5000
"""Most rows that one transaction deletes."""


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """Prepared input of one item."""

    job_id: UUID
    seq: int  #: place of the item in its job, from 0
    tenant: str  #: tenant of the job
    place: str  #: of the bytes, see `workers/preparation/store.py`
    device_us: int  #: time that it took, µs; charged to the tenant, not stored


# All statements are written out: they take arrays of rows or of slices.

_INSERT = text("""
    INSERT INTO prepared (job_id, seq, tenant_id, version, place)
    SELECT job_id, seq, tenant_id, :version, place
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:seqs AS int[]), CAST(:tenants AS text[]),
                CAST(:places AS text[])) AS p (job_id, seq, tenant_id, place)
    ON CONFLICT (job_id, seq) DO UPDATE
    SET version = excluded.version, place = excluded.place
""")

# A slice passes on once each of its items has a result or is prepared. It was no danger to the
# workers that prepared it: on the device it isn't suspect yet. OFFSET 0: one look at each key.
_PASS_ON = text("""
    UPDATE slices SET version = :version, suspect = false, deaths = 0
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS mine (job_id, start)
    WHERE slices.job_id = mine.job_id AND slices.start = mine.start AND slices.state <> 'done'
      AND NOT EXISTS (
          SELECT FROM generate_series(slices.start, slices.stop - 1) AS g (seq)
          WHERE NOT EXISTS (SELECT FROM prepared p
                            WHERE p.job_id = slices.job_id AND p.seq = g.seq
                              AND p.version = :version OFFSET 0)
            AND NOT EXISTS (SELECT FROM results r
                            WHERE r.job_id = slices.job_id AND r.seq = g.seq OFFSET 0))
""")

# A slice that stays is ready again when the first of its items is that is to be prepared still:
# what is prepared waits for it. One that passes on is ready at once.
_POSTPONE = settlement.postpone_query(
    unless="""SELECT 1 FROM prepared p
              WHERE p.job_id = s.job_id AND p.seq = g.seq AND p.version = :version OFFSET 0"""
)


def settle(
    tx: Tx,
    leases: Sequence[Lease],
    rows: Sequence[PreparedRow],
    results: Sequence[Result],
    attempts: Sequence[Attempt],
    *,
    version: str,
    pool: str,
) -> int:
    """Gives leases back with what was prepared under them; returns the number of leases that were
    still held.

    leases: renamed after the model that it was prepared for, which failures are billed to; version:
    of that model. results, attempts: of items whose preparation
    failed, for good or not. Slices of which nothing is left to prepare pass on.
    """
    held, rows = _insert(tx, leases, rows, version)
    postpone = _POSTPONE.bindparams(version=version)
    count = settlement.settle(
        tx, leases, results, attempts, pool=pool, used=rows, postpone=postpone
    )
    tx.execute(_PASS_ON, key_arrays(held) | {"version": version})
    return count


def record(
    tx: Tx,
    leases: Sequence[Lease],
    rows: Sequence[PreparedRow],
    results: Sequence[Result],
    attempts: Sequence[Attempt],
    *,
    version: str,
) -> int:
    """Writes what was prepared of slices that go on; as `settle` otherwise."""
    _, rows = _insert(tx, leases, rows, version)
    return settlement.record(tx, leases, results, attempts, used=rows)


def _insert(
    tx: Tx, leases: Sequence[Lease], rows: Sequence[PreparedRow], version: str
) -> tuple[set[SliceKey], list[PreparedRow]]:
    """Locks the slices of leases that are still held, and writes their rows; returns both."""
    held = claim.lock_held(tx, leases)
    mine = settlement.within([one for one in leases if (one.job_id, one.start) in held], rows)
    if mine:
        values = {
            "jobs": [row.job_id for row in mine],
            "seqs": [row.seq for row in mine],
            "tenants": [row.tenant for row in mine],
            "places": [row.place for row in mine],
        }
        tx.execute(_INSERT, values | {"version": version})
    return held, mine


_TO_PREPARE = claim.input_queries(
    among="""
               AND NOT EXISTS (SELECT 1 FROM prepared p
                               WHERE p.job_id = s.job_id AND p.seq = items.seq
                                 AND p.version = %b::text OFFSET 0)"""
)
_WITH_PLACES = claim.input_queries(
    f"""coalesce((SELECT '{MARK}' || p.place FROM prepared p
                  WHERE p.job_id = s.job_id AND p.seq = items.seq
                    AND p.version = %b::text), input)"""
)


def read_unprepared(tx: Tx, leases: Sequence[Lease], version: str) -> list[InputRow]:
    """Reads the items that are still to be prepared for a version, as `claim.read_inputs`."""
    return claim.read_inputs(tx, leases, _TO_PREPARE, version)


def read_inputs(tx: Tx, leases: Sequence[Lease], version: str) -> list[InputRow]:
    """Reads items as `claim.read_inputs`; MARK and the place of the prepared input stand in place
    of an input that was prepared for this version."""
    return claim.read_inputs(tx, leases, _WITH_PLACES, version)


# Not more than is asked for is counted: a look at the beginning of an index. Slices whose next
# attempt isn't due keep no device busy.
_AHEAD = text("""
    SELECT coalesce(sum(stop - start), 0) FROM (
        SELECT start, stop FROM slices
        WHERE state = 'ready' AND NOT suspect AND model = :model AND version = :version
          AND not_before <= now()
        ORDER BY tenant_id, priority DESC, due_at, job_id, start LIMIT :most
    ) AS waiting
""")


def count_ahead(tx: Tx, model: Model, most: int) -> int:
    """Counts the items that are ready for the device, in up to `most` slices."""
    return int(tx.scalar(_AHEAD, {"model": model.name, "version": model.version, "most": most}))


# An item that has a result needs its prepared input no more. Items of deleted jobs have no rows.
_FORGET = text("""
    DELETE FROM prepared USING (
        SELECT job_id, seq FROM prepared p
        WHERE EXISTS (SELECT FROM results r WHERE r.job_id = p.job_id AND r.seq = p.seq OFFSET 0)
        LIMIT :most FOR UPDATE SKIP LOCKED
    ) AS ended
    WHERE prepared.job_id = ended.job_id AND prepared.seq = ended.seq
    RETURNING prepared.place
""")


def forget(tx: Tx, delete: Callable[[Sequence[str]], Any]) -> int:
    """Deletes prepared inputs of items that have ended: rows, and by `delete` the bytes at their
    places. Returns their number. A crash in between leaves the rows: both are deleted again."""
    places = tx.scalars(_FORGET, {"most": MOST_FORGOTTEN}).all()
    if places:
        delete(places)
    return len(places)
