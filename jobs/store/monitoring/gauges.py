"""Counts over the whole system; cheap with a million items, since they look at open work."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, func, select, text

from jobs.store.db import Tx
from jobs.store.queue.workers import LIVING_STATES
from jobs.store.tables import jobs, tenants, webhook_deliveries
from jobs.store.tables import transfers as transfer_table
from jobs.store.tables import workers as worker_table


def _counts(tx: Tx, query: Select[Any]) -> dict[Any, int]:
    return {row[0]: row[1] for row in tx.execute(query)}


_BY_STATE = select(jobs.c.state, func.count()).group_by(jobs.c.state)


def open_jobs(tx: Tx) -> dict[str, int]:
    """Counts jobs that have not ended, by state."""
    return _counts(tx, _BY_STATE.where(jobs.c.finished_at.is_(None)))


def ended_jobs(tx: Tx) -> dict[str, int]:
    """Counts jobs that have ended, by state; reads all of them, so call it seldom."""
    return _counts(tx, _BY_STATE.where(jobs.c.finished_at.is_not(None)))


@dataclass(frozen=True, slots=True)
class Queued:
    """Work of one model and tenant that waits or runs."""

    model: str  #: name@version
    tenant: str  #: its tenant
    items: int  #: items without a result
    claimable: bool  #: True if any of them can be claimed now
    oldest_s: float  #: time for which the oldest could have been claimed, s


# One pass over the index of open slices, whatever the number of those that are done.
_QUEUE = text("""
    SELECT model || '@' || version, tenant_id,
           sum(stop - start - n_succeeded - n_failed - n_cancelled - n_expired),
           extract(epoch FROM now() - min(not_before)
                       FILTER (WHERE state = 'ready' AND not_before <= now()))
    FROM slices WHERE state <> 'done' GROUP BY model, version, tenant_id
""")


def queue(tx: Tx) -> list[Queued]:
    """Lists open work by model and tenant."""
    return [
        Queued(model, tenant, int(items), oldest_s is not None, float(oldest_s or 0.0))
        for model, tenant, items, oldest_s in tx.execute(_QUEUE)
    ]


# A job that has begun is stuck where it has slices to run and none has ended for so long. A queued
# job only waits its turn, unless nothing of its model ended at all (`unmoved`).
_STUCK = text("""
    SELECT j.model || '@' || j.version, count(*)
    FROM jobs j
    WHERE j.finished_at IS NULL
      AND coalesce(j.started_at, j.created_at) < now() - make_interval(secs => :after_s)
      AND (j.state = 'running' OR
           j.state = 'queued' AND j.model || '@' || j.version = ANY(:unmoved))
      AND EXISTS (SELECT 1 FROM slices s WHERE s.job_id = j.id
                    AND s.state IN ('ready', 'leased') AND s.not_before <= now())
      AND NOT EXISTS (SELECT 1 FROM slices s WHERE s.job_id = j.id
                        AND s.finished_at > now() - make_interval(secs => :after_s))
    GROUP BY 1
""")


def stuck(tx: Tx, after_s: float, unmoved: Collection[str]) -> dict[str, int]:
    """Counts stuck jobs by model.

    after_s: time without an ended slice from which a job counts; unmoved: models without any ended
    item, whose queued jobs count too.
    """
    found = tx.execute(_STUCK, {"after_s": after_s, "unmoved": list(unmoved)})
    return {row[0]: row[1] for row in found}


def workers(tx: Tx, silent_s: float) -> dict[tuple[str, str], int]:
    """Counts living workers by pool and state."""
    w = worker_table.c
    query = select(w.pool, w.state, func.count()).where(
        w.state.in_(LIVING_STATES), w.heartbeat_at > func.now() - timedelta(seconds=silent_s)
    )
    return {(row[0], row[1]): row[2] for row in tx.execute(query.group_by(w.pool, w.state))}


# Marks and counts in one statement: each death is counted by one keeper, once.
_DEATHS = text("""
    WITH counted AS (
        UPDATE workers SET death_told = true WHERE died IS NOT NULL AND NOT death_told
        RETURNING died
    )
    SELECT died, count(*) FROM counted GROUP BY 1
""")


def deaths(tx: Tx) -> dict[str, int]:
    """Counts workers that died since the last call, by cause."""
    return {row[0]: row[1] for row in tx.execute(_DEATHS)}


_WRITE = text("SELECT pg_logical_emit_message(true, 'millrace', '')")
_LONGEST_LOCK = text("""
    SELECT extract(epoch FROM max(clock_timestamp() - waitstart)) FROM pg_locks WHERE NOT granted
""")


def webhooks(tx: Tx) -> tuple[int, float]:
    """Returns the number of pending deliveries, and for how long the first is due, s."""
    d = webhook_deliveries.c
    age = func.extract("epoch", func.now() - func.min(d.due_at))
    query = select(func.count(), func.coalesce(age, 0)).where(d.state == "pending")
    count, oldest_s = tx.execute(query).one()
    return count, max(0.0, float(oldest_s))


def transfers(tx: Tx) -> dict[str, int]:
    """Counts imports and exports that are not done."""
    kind = transfer_table.c.kind
    return _counts(tx, select(kind, func.count()).group_by(kind))


def weights(tx: Tx, names: Collection[str]) -> Mapping[str, float]:
    """Returns the weights of tenants that have a row; all others weigh 1."""
    query = select(tenants.c.tenant_id, tenants.c.weight).where(tenants.c.tenant_id.in_(names))
    return {row[0]: row[1] for row in tx.execute(query)}


def size(tx: Tx) -> int:
    """Returns the size of the database in bytes."""
    return int(tx.scalar(select(func.pg_database_size(func.current_database()))) or 0)


def longest_lock_s(tx: Tx) -> float:
    """Returns the longest wait for a lock now, s."""
    return float(tx.scalar(_LONGEST_LOCK) or 0.0)


def write(tx: Tx) -> None:
    """Writes a record to the log, and no row: the commit then waits for the disk."""
    tx.execute(_WRITE)
