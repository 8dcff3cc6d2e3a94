"""Counts over the whole system; cheap with a million items, since they look at open work."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import and_, exists, func, or_, select, text, true, update

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.queue.workers import LIVING_STATES
from jobs.store.tables import jobs, slices, tenants, webhook_deliveries
from jobs.store.tables import transfers as transfer_table
from jobs.store.tables import workers as worker_table

_BY_STATE = select(jobs.c.state, func.count()).group_by(jobs.c.state)


def open_jobs(tx: Tx) -> dict[str, int]:
    """Counts jobs that have not ended, by state."""
    return queries.pairs(tx, _BY_STATE.where(jobs.c.finished_at.is_(None)))


def ended_jobs(tx: Tx) -> dict[str, int]:
    """Counts jobs that have ended, by state; reads all of them, so call it seldom."""
    return queries.pairs(tx, _BY_STATE.where(jobs.c.finished_at.is_not(None)))


@dataclass(frozen=True, slots=True)
class Queued:
    """Work of one model and tenant that waits or runs."""

    model: str  #: name@version
    tenant: str  #: its tenant
    items: int  #: items without a result
    claimable: bool  #: True if any of them can be claimed now
    oldest_s: float  #: time for which the oldest could have been claimed, s


_s = slices.c
_WAITING_SINCE = func.min(_s.not_before).filter(_s.state == "ready", _s.not_before <= func.now())
# One pass over the index of open slices, whatever the number of those that are done.
_QUEUE = (
    select(
        _s.model + "@" + _s.version,
        _s.tenant_id,
        func.sum(queries.unfinished(slices)),
        queries.age_s(_WAITING_SINCE),
    )
    .where(text("state <> 'done'"))
    .group_by(_s.model, _s.version, _s.tenant_id)
)


def queue(tx: Tx) -> list[Queued]:
    """Lists open work by model and tenant."""
    return [
        Queued(model, tenant, items, oldest_s is not None, oldest_s or 0.0)
        for model, tenant, items, oldest_s in tx.execute(_QUEUE)
    ]


def stuck(tx: Tx, after_s: float, unmoved: Collection[str]) -> dict[str, int]:
    """Counts stuck jobs by model.

    after_s: time without an ended slice from which a job counts; unmoved: models without any ended
    item, whose queued jobs count too.
    """
    before = func.now() - timedelta(seconds=after_s)
    model = jobs.c.model + "@" + jobs.c.version
    its = exists().where(_s.job_id == jobs.c.id)
    # A job that has begun is stuck where it has slices to run and none has ended for so long. A
    # queued job only waits its turn, unless nothing of its model ended at all.
    query = select(model, func.count()).where(
        jobs.c.finished_at.is_(None),
        func.coalesce(jobs.c.started_at, jobs.c.created_at) < before,
        or_(jobs.c.state == "running", and_(jobs.c.state == "queued", model.in_(list(unmoved)))),
        its.where(_s.state.in_(("ready", "leased")), _s.not_before <= func.now()),
        ~its.where(_s.finished_at > before),
    )
    return queries.pairs(tx, query.group_by(model))


def workers(tx: Tx, silent_s: float) -> dict[tuple[str, str], int]:
    """Counts living workers, and quarantined ones, by pool and state."""
    w = worker_table.c
    since = func.now() - timedelta(seconds=silent_s)
    query = select(w.pool, w.state, func.count()).where(
        or_(
            w.state.in_(LIVING_STATES) & (w.heartbeat_at > since),
            (w.state == "quarantined") & (w.watched_at > since),
        )
    )
    return {(row[0], row[1]): row[2] for row in tx.execute(query.group_by(w.pool, w.state))}


def deaths(tx: Tx) -> dict[str, int]:
    """Counts workers that died since the last call, by cause."""
    w = worker_table.c
    died = update(worker_table).where(w.died.is_not(None), ~w.death_told).values(death_told=True)
    # Marks and counts in one statement: each death is counted by one keeper, once.
    counted = died.returning(w.died).cte("counted")
    return queries.pairs(tx, select(counted.c.died, func.count()).group_by(counted.c.died))


# Written out, since the server's catalog is no table of ours.
_LONGEST_LOCK = text("""
    SELECT extract(epoch FROM max(clock_timestamp() - waitstart)) FROM pg_locks WHERE NOT granted
""")


def webhooks(tx: Tx) -> tuple[int, float]:
    """Returns the number of pending deliveries, and for how long the first is due, s."""
    d = webhook_deliveries.c
    query = select(func.count(), func.coalesce(queries.age_s(func.min(d.due_at)), 0))
    count, oldest_s = tx.execute(query.where(d.state == "pending")).one()
    return count, max(0.0, oldest_s)


def transfers(tx: Tx) -> dict[str, int]:
    """Counts imports and exports that are not done."""
    kind = transfer_table.c.kind
    return queries.pairs(tx, select(kind, func.count()).group_by(kind))


def weights(tx: Tx, names: Collection[str]) -> Mapping[str, float]:
    """Returns the weights of tenants that have a row; all others weigh 1."""
    query = select(tenants.c.tenant_id, tenants.c.weight).where(tenants.c.tenant_id.in_(names))
    return queries.pairs(tx, query)


def size(tx: Tx) -> int:
    """Returns the size of the database in bytes."""
    return int(tx.scalar(select(func.pg_database_size(func.current_database()))) or 0)


def longest_lock_s(tx: Tx) -> float:
    """Returns the longest wait for a lock now, s."""
    return float(tx.scalar(_LONGEST_LOCK) or 0.0)


def write(tx: Tx) -> None:
    """Writes a record to the log, and no row: the commit then waits for the disk."""
    tx.execute(select(func.pg_logical_emit_message(true(), "millrace", "")))
