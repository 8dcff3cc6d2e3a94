"""Queries of `why`: deaths of workers, slow webhook receivers, waits for locks, jobs ahead.

They are for operators: callers act as EVERYBODY.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, text

from jobs.store.db import Tx
from jobs.store.jobs.read import JobRow
from jobs.store.monitoring.observations import (
    Death,
    LockWait,
    ModelObservation,
    Observations,
    Receiver,
)
from jobs.store.queue import workers
from jobs.store.tables import slices

_READY_SUSPECTS = select(slices.c.job_id).where(slices.c.state == "ready", slices.c.suspect)
_SUSPECTS = select(func.count()).select_from(_READY_SUSPECTS.limit(1000).subquery())

DEATHS_S = 600.0
"""Age from which a worker's death is no longer reported."""

# Workers that ended unexpectedly; one that nobody saw die fell silent.
_DEATHS = text("""
    SELECT incarnation, pool, device, coalesce(died, 'silent') AS how,
           extract(epoch FROM now() - coalesce(ended_at, heartbeat_at))::float8 AS ago_s
    FROM workers
    WHERE state = 'lost'
      AND coalesce(ended_at, heartbeat_at) > now() - make_interval(secs => :within_s)
    ORDER BY ago_s LIMIT 100
""")

# Hosts that the first pending deliveries wait for: those that were tried, and those that are due.
_RECEIVERS = text("""
    SELECT substring(url FROM '^[a-z]+://([^/?#]+)') AS host, count(*) AS waiting,
           sum(tries) AS tries,
           extract(epoch FROM now() - min(requested_at))::float8 AS oldest_s,
           coalesce(max(last_error), '') AS error
    FROM (SELECT * FROM webhook_deliveries WHERE state = 'pending' ORDER BY due_at LIMIT 1000) AS d
    GROUP BY 1 ORDER BY oldest_s DESC LIMIT 5
""")

# Waits by clock_timestamp(): now() is the beginning of this transaction, which may have waited
# itself. Reads the lock table alone, and waits for no lock.
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


_SHORT_TIMEOUTS = text("SET LOCAL lock_timeout = '500ms'; SET LOCAL statement_timeout = '2s'")


def set_statement_timeout(tx: Tx) -> None:
    """Sets short timeouts for this transaction: it examines what keeps others waiting."""
    tx.execute(_SHORT_TIMEOUTS)


def locks(tx: Tx) -> LockWait:
    """Returns the transactions that wait for locks; waits for none itself."""
    found = tx.execute(_LOCKS).one_or_none()
    return LockWait(*found) if found else LockWait()


def observations(tx: Tx, silent_s: float) -> Observations:
    """Returns what else the rules need.

    silent_s: time without heartbeat after which a worker counts as dead.
    """
    statuses = workers.model_statuses(tx, silent_s)
    return Observations(
        models={
            key: ModelObservation({str(state): n for state, n in one.states.items()}, one.error)
            for key, one in statuses.items()
        },
        deaths=tuple(Death(*row) for row in tx.execute(_DEATHS, {"within_s": DEATHS_S})),
        suspects=tx.scalar(_SUSPECTS) or 0,
        receivers=tuple(Receiver(*row) for row in tx.execute(_RECEIVERS)),
    )


# Ids go by time: the newest few thousand before this one are read from the end of the key.
_BEFORE = """
    SELECT count(*)
    FROM (SELECT tenant_id, model, version, finished_at, state FROM jobs
          WHERE {looked_at} id < :job ORDER BY id DESC LIMIT 5000) AS j
    WHERE {counted} model = :model AND version = :version
      AND state NOT IN ('validating', 'paused') AND (finished_at IS NULL OR finished_at > :since)
"""
_OWN_BEFORE = text(_BEFORE.format(looked_at="tenant_id = :tenant AND", counted=""))
_OTHERS_BEFORE = text(_BEFORE.format(looked_at="", counted="tenant_id <> :tenant AND"))


def count_own_ahead(tx: Tx, job: JobRow) -> int:
    """Counts the tenant's earlier jobs for its model that were open when the job was queued."""
    return tx.scalar(_OWN_BEFORE, _place(job)) or 0


def count_others_ahead(tx: Tx, job: JobRow) -> int:
    """Counts such jobs of other tenants, in a transaction that sees them."""
    return tx.scalar(_OTHERS_BEFORE, _place(job)) or 0


def _place(job: JobRow) -> dict[str, Any]:
    return {
        "job": job.id,
        "tenant": job.tenant_id,
        "model": job.model,
        "version": job.version,
        "since": job.queued_at or job.created_at,
    }


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


_SLICES = text("""
    SELECT count(*) FILTER (WHERE state = 'ready' AND not_before <= now()) AS ready,
           count(*) FILTER (WHERE state = 'ready' AND not_before > now()) AS postponed,
           count(*) FILTER (WHERE state = 'leased') AS leased,
           count(*) FILTER (WHERE state = 'held') AS held,
           count(*) FILTER (WHERE suspect AND state <> 'done') AS suspect,
           count(*) FILTER (WHERE retrying AND state <> 'done') AS retrying,
           coalesce(max(deaths), 0) AS deaths,
           min(claimed_at) AS first_claimed_at,
           extract(epoch FROM min(not_before) FILTER (WHERE state = 'ready') - now())::float8
               AS next_s,
           extract(epoch FROM now() - max(finished_at))::float8 AS quiet_s
    FROM slices WHERE job_id = :job AND tenant_id = :tenant
""")
# Failed results of the first slices that have any, by the results' key: no index finds them
# otherwise.
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


def slice_counts(tx: Tx, job: UUID, tenant: str) -> SliceCounts:
    """Counts the slices of a job by their state."""
    return SliceCounts(*tx.execute(_SLICES, {"job": job, "tenant": tenant}).one())


def error_counts(tx: Tx, job: UUID, tenant: str) -> dict[str, int]:
    """Counts failed items by error code, the most frequent first, in the first slices with any."""
    found: Any = tx.execute(_ERRORS, {"job": job, "tenant": tenant})
    return {row.code: row.items for row in found}
