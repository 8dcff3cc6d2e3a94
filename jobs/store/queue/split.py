"""Splits of slices: suspects that are accused again, and claimed ones that would run for long."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy import ColumnElement, literal, select, text, update
from sqlalchemy.dialects.postgresql import insert

from jobs.store.db import Tx, notify_work
from jobs.store.queue import fair_share
from jobs.store.queue.claim import Lease
from jobs.store.queue.finish import COUNTS, SET_COUNTS
from jobs.store.tables import slices as table

# Seqs of a slice without a result. Written out for OFFSET 0: one look at the results' key for each.
_PENDING = text("""
    SELECT g.seq FROM slices s, LATERAL generate_series(s.start, s.stop - 1) AS g (seq)
    WHERE s.job_id = :job AND s.start = :start
      AND NOT EXISTS (SELECT 1 FROM results r WHERE r.job_id = s.job_id AND r.seq = g.seq OFFSET 0)
    ORDER BY g.seq
""")

# Recounts both halves. Written out, as COUNTS is.
_RECOUNT = text(f"""
    UPDATE slices SET {SET_COUNTS} FROM slices s, {COUNTS}
    WHERE s.job_id = :job AND s.start IN (:start, :middle)
      AND slices.job_id = s.job_id AND slices.start = s.start
""")
# Its epoch begins anew: nobody ever had a lease of a slice with its start.
_INHERITED = (
    "job_id", "stop", "tenant_id", "model", "version", "priority", "not_before", "due_at",
    "suspect", "retrying", "inputs",
)  # fmt: skip


def is_slice(job: UUID, start: int) -> ColumnElement[bool]:
    """Filters `slices` by the key of one."""
    return (table.c.job_id == job) & (table.c.start == start)


def pending_seqs(tx: Tx, job: UUID, start: int) -> Sequence[int]:
    """Returns the seqs of a slice that have no result."""
    return tx.scalars(_PENDING, {"job": job, "start": start}).all()


def split(tx: Tx, job: UUID, start: int, middle: int, state: ColumnElement[str]) -> None:
    """Makes a new slice of the second half, in a state of its own. The caller has locked it."""
    its = is_slice(job, start)
    half = select(literal(middle), state, *(table.c[name] for name in _INHERITED)).where(its)
    names = ["start", "state", *_INHERITED]
    tx.execute(insert(table).from_select(names, half, include_defaults=False))
    tx.execute(update(table).where(its).values(stop=middle))
    tx.execute(_RECOUNT, {"job": job, "start": start, "middle": middle})


def cut(tx: Tx, lease: Lease, items: int, pool: str) -> Lease:
    """Cuts a slice that the transaction has claimed after so many pending items; returns what is
    left of the lease. The rest is claimable, and its tenant is not charged for it."""
    pending = pending_seqs(tx, lease.job_id, lease.start)
    if len(pending) <= items:
        return lease
    middle, its = pending[items], is_slice(lease.job_id, lease.start)
    charged_ms: float = tx.scalars(select(table.c.charged_ms).where(its)).one()
    kept_ms = charged_ms * items / len(pending)
    split(tx, lease.job_id, lease.start, middle, literal("ready"))
    tx.execute(update(table).where(its).values(charged_ms=kept_ms))
    fair_share.correct(tx, pool, {lease.tenant: kept_ms - charged_ms})
    notify_work(tx)
    return replace(lease, stop=middle)
