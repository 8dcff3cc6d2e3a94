"""Queries of `why`: deaths of workers, slow webhook receivers, waits for locks, jobs ahead.

They are for operators: callers act as EVERYBODY.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Double, bindparam, func, or_, select, text, true

from jobs.models.model import without_stage
from jobs.store import queries
from jobs.store.db import Tx, set_local
from jobs.store.jobs.read import JobRow
from jobs.store.monitoring.observations import (
    Death,
    LockWait,
    ModelObservation,
    Observations,
    Receiver,
    SickWorker,
)
from jobs.store.queue import workers
from jobs.store.tables import jobs, slices, webhook_deliveries
from jobs.store.tables import workers as worker_table

_s = slices.c
_READY_SUSPECTS = select(_s.job_id).where(_s.state == "ready", _s.suspect)
_SUSPECTS = select(func.count()).select_from(_READY_SUSPECTS.limit(1000).subquery())

DEATHS_S = 600.0
"""Age from which a worker's death is no longer reported."""

_w = worker_table.c
_ended_at = func.coalesce(_w.ended_at, _w.heartbeat_at)
_ago_s = queries.age_s(_ended_at).label("ago_s")
# Workers that ended unexpectedly; one that nobody saw die fell silent.
_DEATHS = (
    select(_w.incarnation, _w.pool, _w.device, func.coalesce(_w.died, "silent"), _ago_s)
    .where(_w.state == "lost", _ended_at > func.now() - timedelta(seconds=DEATHS_S))
    .where(_w.died.is_distinct_from("sick"))
    .order_by(_ago_s)
    .limit(100)
)
_quarantined = _w.state == "quarantined"
_silent_s = bindparam("silent_s", type_=Double)
_by_device = or_(_w.died == "sick", _w.device_error.is_not(None))
_lately = _by_device & (_ended_at > func.now() - timedelta(seconds=DEATHS_S))
_watched = _w.watched_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 0, _silent_s)
_error_text = func.coalesce(_w.device_error, "")
_SICK = (
    select(_w.incarnation, _w.pool, _w.device, _error_text, _quarantined, _ago_s)
    .where(or_(_lately & (_w.state == "lost"), _quarantined & _watched))
    .order_by(_quarantined.desc(), _ago_s)
    .limit(100)
)

# Hosts that the first pending deliveries wait for: those that were tried, and those that are due.
_d = webhook_deliveries.c
_pending = select(_d.url, _d.tries, _d.requested_at, _d.last_error).where(_d.state == "pending")
_first = _pending.order_by(_d.due_at).limit(1000).subquery("d").c
_host = func.substring(_first.url, "^[a-z]+://([^/?#]+)")
_oldest_s = queries.age_s(func.min(_first.requested_at)).label("oldest_s")
_error = func.coalesce(func.max(_first.last_error), "")
_RECEIVERS = (
    select(_host, func.count(), func.sum(_first.tries), _oldest_s, _error)
    .group_by(_host)
    .order_by(_oldest_s.desc())
    .limit(5)
)

# Waits by clock_timestamp(): now() is the beginning of this transaction, which may have waited
# itself. Reads the lock table alone, and waits for no lock. Written out, since the server's catalog
# is no table of ours.
_LOCKS = text("""
    WITH waits AS (
        SELECT pid, extract(epoch FROM clock_timestamp() - waitstart)::float8 AS waits_s,
               coalesce(CAST(CAST(relation AS regclass) AS text), locktype) AS what
        FROM pg_locks
        WHERE NOT granted AND waitstart IS NOT NULL
          AND (database IS NULL
               OR database = (SELECT oid FROM pg_database WHERE datname = current_database()))
    )
    SELECT count(*) OVER () AS waiting, waits_s, what,
           coalesce((pg_blocking_pids(pid))[1], 0) AS blocker
    FROM waits ORDER BY waits_s DESC LIMIT 1
""")


def set_statement_timeout(tx: Tx) -> None:
    """Sets short timeouts for this transaction: it examines what keeps others waiting."""
    set_local(tx, "lock_timeout", "500ms")
    set_local(tx, "statement_timeout", "2s")


def locks(tx: Tx) -> LockWait:
    """Returns the transactions that wait for locks; waits for none itself."""
    found = tx.execute(_LOCKS).one_or_none()
    return LockWait(*found) if found else LockWait()


def observations(tx: Tx, silent_s: float) -> Observations:
    """Returns what else the rules need.

    silent_s: time without heartbeat after which a worker counts as dead.
    """
    statuses = workers.model_statuses(tx, silent_s)
    drained = workers.drained(tx, silent_s)
    return Observations(
        models={
            key: ModelObservation(
                {str(state): n for state, n in one.states.items()}, one.error, drained.get(key, ())
            )
            for key, one in statuses.items()
        },
        deaths=tuple(Death(*row) for row in tx.execute(_DEATHS)),
        sick=tuple(SickWorker(*row) for row in tx.execute(_SICK, {"silent_s": silent_s})),
        suspects=tx.scalar(_SUSPECTS) or 0,
        receivers=tuple(Receiver(*row) for row in tx.execute(_RECEIVERS)),
    )


def count_own_ahead(tx: Tx, job: JobRow) -> int:
    """Counts the tenant's earlier jobs for its model that were open when the job was queued."""
    return _count_ahead(tx, job, own=True)


def count_others_ahead(tx: Tx, job: JobRow) -> int:
    """Counts such jobs of other tenants, in a transaction that sees them."""
    return _count_ahead(tx, job, own=False)


def _count_ahead(tx: Tx, job: JobRow, *, own: bool) -> int:
    """Looks at 5,000 jobs before it: ids go by time, and the end of the key is read."""
    before = select(jobs).where(jobs.c.id < job.id)
    if own:
        before = before.where(jobs.c.tenant_id == job.tenant_id)
    j = before.order_by(jobs.c.id.desc()).limit(5000).subquery("j").c
    query = select(func.count()).where(
        j.model == job.model,
        j.version == job.version,
        j.state.not_in(("validating", "paused")),
        or_(j.finished_at.is_(None), j.finished_at > (job.queued_at or job.created_at)),
        true() if own else j.tenant_id != job.tenant_id,
    )
    return tx.scalars(query).one()


@dataclass(frozen=True, slots=True)
class SliceCounts:
    """Slices of a job by their state."""

    ready: int  #: claimable now
    postponed: int  #: claimable later
    leased: int  #: leased to workers
    held: int  #: paused or being ended
    suspect: int  #: not done, and run alone because a worker died with them
    retrying: int  #: not done, with items that failed before
    deaths: int  #: most deaths of workers that ran one of them alone
    first_claimed_at: datetime | None  #: time of the first claim
    next_s: float | None  #: time until the next ready one is claimable, s
    quiet_s: float | None  #: time since the last one ended, s


_count = func.count()
_is_ready, _is_open = _s.state == "ready", _s.state != "done"
_SLICES = select(
    _count.filter(_is_ready, _s.not_before <= func.now()),
    _count.filter(_is_ready, _s.not_before > func.now()),
    _count.filter(_s.state == "leased"),
    _count.filter(_s.state == "held"),
    _count.filter(_s.suspect, _is_open),
    _count.filter(_s.retrying, _is_open),
    func.coalesce(func.max(_s.deaths), 0),
    func.min(_s.claimed_at),
    -queries.age_s(func.min(_s.not_before).filter(_is_ready)),
    queries.age_s(func.max(_s.finished_at)),
).where(_s.job_id == bindparam("job"), queries.is_own(slices))
# Failed results of the first slices that have any, by the results' key: no index finds them
# otherwise. Written out: LATERAL and its LIMIT keep the look-ups small.
_ERRORS = text("""
    SELECT coalesce(CAST(r.error AS json) ->> 'code', '') AS code, count(*) AS items
    FROM (SELECT start, stop FROM slices
          WHERE job_id = :job AND tenant_id = :tenant AND n_failed > 0
          ORDER BY start LIMIT 20) AS s,
         LATERAL (SELECT error FROM results
                  WHERE job_id = :job AND tenant_id = :tenant AND outcome = 'failed'
                    AND seq >= s.start AND seq < s.stop LIMIT 100) AS r
    GROUP BY 1 ORDER BY 2 DESC LIMIT 3
""")


_VERSIONS = (
    select(_s.version)
    .where(_s.job_id == bindparam("job"), queries.is_own(slices), _is_open)
    .distinct()
)


def open_versions(tx: Tx, job: UUID, tenant: str) -> Sequence[str]:
    """Returns the versions of a job's slices that are not done."""
    found = tx.scalars(_VERSIONS, {"job": job, "tenant": tenant})
    return sorted({without_stage(version) for version in found})


def slice_counts(tx: Tx, job: UUID, tenant: str) -> SliceCounts:
    """Counts the slices of a job by their state."""
    return SliceCounts(*tx.execute(_SLICES, {"job": job, "tenant": tenant}).one())


def error_counts(tx: Tx, job: UUID, tenant: str) -> dict[str, int]:
    """Counts failed items by error code, the most frequent first, in the first slices with any."""
    return queries.pairs(tx, _ERRORS, {"job": job, "tenant": tenant})
