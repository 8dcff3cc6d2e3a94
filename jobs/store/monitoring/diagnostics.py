"""What `why` asks the database: how workers died, who keeps webhooks waiting, who waits for locks,
and what came before a job. For operators: callers act as EVERYBODY."""

from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.store.db import Tx
from jobs.store.monitoring.observations import (
    Death,
    LockWait,
    ModelObservation,
    Observations,
    Receiver,
)
from jobs.store.queue import workers

DEATHS_S = 600.0
"""Deaths that are older say little of now."""

_DEATHS = text("""
    SELECT incarnation, pool, device, coalesce(died, 'silent') AS how,
           extract(epoch FROM now() - coalesce(ended_at, heartbeat_at))::float8 AS ago_s
    FROM workers
    WHERE state = 'lost'
      AND coalesce(ended_at, heartbeat_at) > now() - make_interval(secs => :within_s)
    ORDER BY ago_s LIMIT 100
""")

_SUSPECTS = text("""
    SELECT count(*) FROM (SELECT 1 FROM slices WHERE state = 'ready' AND suspect LIMIT 1000) AS s
""")

# Those that were tried, and those that are due: what waits for its first second is no news.
_RECEIVERS = text("""
    SELECT substring(url FROM '^[a-z]+://([^/?#]+)') AS host, count(*) AS waiting,
           sum(tries) AS tries,
           extract(epoch FROM now() - min(requested_at))::float8 AS oldest_s,
           coalesce(max(last_error), '') AS error
    FROM (SELECT * FROM webhook_deliveries WHERE state = 'pending' ORDER BY due_at LIMIT 1000) AS d
    GROUP BY 1 ORDER BY oldest_s DESC LIMIT 5
""")

# Not now(): that is when this transaction began, and it may have waited itself.
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


_HURRY = text("SET LOCAL lock_timeout = '500ms'; SET LOCAL statement_timeout = '2s'")


def set_statement_timeout(tx: Tx) -> None:
    """In this transaction nothing is waited for long: it is about what keeps others waiting."""
    tx.execute(_HURRY)


def locks(tx: Tx) -> LockWait:
    """Who waits for locks. Waits for none itself."""
    found = tx.execute(_LOCKS).one_or_none()
    return LockWait(*found) if found else LockWait()


def observations(tx: Tx, silent_s: float) -> Observations:
    """What else rules ask of the database. silent_s: a worker that says nothing for so long is
    gone."""
    standing = workers.model_statuses(tx, silent_s)
    return Observations(
        models={
            key: ModelObservation({str(state): n for state, n in one.states.items()}, one.error)
            for key, one in standing.items()
        },
        deaths=tuple(Death(*row) for row in tx.execute(_DEATHS, {"within_s": DEATHS_S})),
        suspects=tx.scalar(_SUSPECTS) or 0,
        receivers=tuple(Receiver(*row) for row in tx.execute(_RECEIVERS)),
    )


# By their ids, which go by time: the newest few thousand before this one are looked at.
_BEFORE = """
    SELECT count(*)
    FROM (SELECT tenant_id, model, version, finished_at, state FROM jobs
          WHERE {looked_at} id < :job ORDER BY id DESC LIMIT 5000) AS j
    WHERE {counted} model = :model AND version = :version
      AND state NOT IN ('validating', 'paused') AND (finished_at IS NULL OR finished_at > :since)
"""
_OWN_BEFORE = text(_BEFORE.format(looked_at="tenant_id = :tenant AND", counted=""))
_OTHERS_BEFORE = text(_BEFORE.format(looked_at="", counted="tenant_id <> :tenant AND"))


def count_own_ahead(tx: Tx, job: RowMapping) -> int:
    """Jobs of its tenant for the same model that came earlier and were open when it was queued."""
    return tx.scalar(_OWN_BEFORE, _place_of(job)) or 0


def count_others_ahead(tx: Tx, job: RowMapping) -> int:
    """The same of other tenants, in a transaction that sees them."""
    return tx.scalar(_OTHERS_BEFORE, _place_of(job)) or 0


def _place_of(job: RowMapping) -> dict[str, Any]:
    return {
        "job": job["id"],
        "tenant": job["tenant_id"],
        "model": job["model"],
        "version": job["version"],
        "since": job["queued_at"] or job["created_at"],
    }


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
# By the slices that have any: no index knows which results failed.
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


def slice_counts(tx: Tx, job: UUID, tenant: str) -> RowMapping:
    """How the slices of a job stand."""
    return tx.execute(_SLICES, {"job": job, "tenant": tenant}).mappings().one()


def error_counts(tx: Tx, job: UUID, tenant: str) -> dict[str, int]:
    """What a job's items failed with, by code, the most frequent first; of the first
    slices that have any."""
    found: Any = tx.execute(_ERRORS, {"job": job, "tenant": tenant})
    return {row.code: row.items for row in found}
