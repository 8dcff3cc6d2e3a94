"""How the whole system stands, counted: cheap with a million items, since only what is open is
looked at often."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import text

from jobs.store.db import Tx

_OPEN = text("SELECT state, count(*) FROM jobs WHERE finished_at IS NULL GROUP BY 1")
_ENDED = text("SELECT state, count(*) FROM jobs WHERE finished_at IS NOT NULL GROUP BY 1")


def open_jobs(tx: Tx) -> dict[str, int]:
    """Jobs that have not ended, by state."""
    return {row[0]: row[1] for row in tx.execute(_OPEN)}


def ended_jobs(tx: Tx) -> dict[str, int]:
    """Those that have, by state: all that are kept, so not to be asked for every moment."""
    return {row[0]: row[1] for row in tx.execute(_ENDED)}


@dataclass(frozen=True, slots=True)
class Queued:
    """What waits of one model and tenant. model: name@version; items: without a result; claimable:
    whether any of them may be claimed now, and for how long the oldest of those could be."""

    model: str
    tenant: str
    items: int
    claimable: bool
    oldest_s: float


_QUEUE = text("""
    SELECT model || '@' || version, tenant_id,
           sum(stop - start - n_succeeded - n_failed - n_cancelled - n_expired),
           extract(epoch FROM now() - min(not_before)
                       FILTER (WHERE state = 'ready' AND not_before <= now()))
    FROM slices WHERE state <> 'done' GROUP BY model, version, tenant_id
""")


def queue(tx: Tx) -> list[Queued]:
    """What waits, or is in hand."""
    return [
        Queued(model, tenant, int(items), oldest_s is not None, float(oldest_s or 0.0))
        for model, tenant, items, oldest_s in tx.execute(_QUEUE)
    ]


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
    """Jobs with work to do of which nothing ended for so long, by model: those that have begun;
    those that haven't only wait their turn, unless their model is one of which nothing ended at
    all (unmoved: such)."""
    found = tx.execute(_STUCK, {"after_s": after_s, "unmoved": list(unmoved)})
    return {row[0]: row[1] for row in found}


_WORKERS = text("""
    SELECT pool, state, count(*) FROM workers
    WHERE state IN ('loading', 'ready', 'draining')
      AND heartbeat_at > now() - make_interval(secs => :silent_s)
    GROUP BY 1, 2
""")


def workers(tx: Tx, silent_s: float) -> dict[tuple[str, str], int]:
    """Those that live, by pool and state."""
    return {(row[0], row[1]): row[2] for row in tx.execute(_WORKERS, {"silent_s": silent_s})}


# Each is counted by one keeper, once.
_DEATHS = text("""
    WITH told AS (
        UPDATE workers SET death_told = true WHERE died IS NOT NULL AND NOT death_told
        RETURNING died
    )
    SELECT died, count(*) FROM told GROUP BY 1
""")


def deaths(tx: Tx) -> dict[str, int]:
    """Workers whose supervisors saw them die since anybody asked, by how."""
    return {row[0]: row[1] for row in tx.execute(_DEATHS)}


_WEBHOOKS = text("""
    SELECT count(*), coalesce(extract(epoch FROM now() - min(due_at)), 0)
    FROM webhook_deliveries WHERE state = 'pending'
""")
_TRANSFERS = text("SELECT kind, count(*) FROM transfers GROUP BY 1")
_WEIGHTS = text("SELECT tenant_id, weight FROM tenants WHERE tenant_id = ANY(:tenants)")
_SIZE = text("SELECT pg_database_size(current_database())")
_LONGEST_LOCK = text("""
    SELECT extract(epoch FROM max(clock_timestamp() - waitstart)) FROM pg_locks WHERE NOT granted
""")
_WRITE = text("SELECT pg_logical_emit_message(true, 'millrace', '')")


def webhooks(tx: Tx) -> tuple[int, float]:
    """Deliveries that wait for a try, and since when the first is due, s."""
    count, oldest_s = tx.execute(_WEBHOOKS).one()
    return count, max(0.0, float(oldest_s))


def transfers(tx: Tx) -> dict[str, int]:
    """Imports and exports that aren't done, by kind."""
    return {row[0]: row[1] for row in tx.execute(_TRANSFERS)}


def weights(tx: Tx, tenants: Collection[str]) -> Mapping[str, float]:
    """Of those that have one of their own; everybody else's is 1."""
    return {row[0]: row[1] for row in tx.execute(_WEIGHTS, {"tenants": list(tenants)})}


def size(tx: Tx) -> int:
    """Bytes of the database."""
    return int(tx.scalar(_SIZE) or 0)


def longest_lock_s(tx: Tx) -> float:
    """For how long the first of those who wait for a lock now has waited."""
    return float(tx.scalar(_LONGEST_LOCK) or 0.0)


def write(tx: Tx) -> None:
    """The least that makes a commit wait for the disk: a record in the log, no row."""
    tx.execute(_WRITE)
