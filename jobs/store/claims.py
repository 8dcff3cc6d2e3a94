"""Leases: claim, renew, reap. A lease is fenced by its epoch, which only grows.

The database's clock decides; a worker's clock decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import text

from jobs.registry import Model
from jobs.store.db import Tx, cursor, notify_work
from jobs.store.endings import close_finished_jobs, end_slices

MAX_SLICES = 500
"""Slices a claim takes at most: one-item jobs come in hundreds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run one slice. params: the job's, as JSON."""

    job_id: UUID
    start: int
    stop: int
    epoch: int
    tenant: str
    model: str
    params: str


# The best slices of each model that this worker serves, as many as fit its room for that model.
# The innermost query locks (skipping what others hold) in the order of the index slices_ready, a
# handful more than needed; the running sum then keeps those that fit, the first in any case. Rows
# that were locked and not kept are free again at commit. Deadlines, fair shares and classes will
# change the order, and nothing else.
_CLAIM = text("""
    WITH kept AS (
        SELECT job_id, start
        FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[]), CAST(:rooms AS int[]))
                 AS wanted (model, version, room),
             LATERAL (
                 SELECT job_id, start,
                        sum(stop - start) OVER (ORDER BY priority DESC, job_id, start) AS filled,
                        row_number() OVER (ORDER BY priority DESC, job_id, start) AS place
                 FROM (
                     SELECT job_id, start, stop, priority
                     FROM slices
                     WHERE state = 'ready' AND NOT suspect
                       AND model = wanted.model AND version = wanted.version
                       AND not_before <= now()
                     ORDER BY priority DESC, job_id, start
                     LIMIT least(wanted.room, :max_slices)
                     FOR UPDATE SKIP LOCKED
                 ) AS locked
             ) AS ordered
        WHERE filled <= room OR place = 1
    )
    UPDATE slices
    SET state = 'leased', epoch = epoch + 1, lease_owner = :owner,
        lease_until = now() + make_interval(secs => :lease_s)
    FROM kept, jobs
    WHERE slices.job_id = kept.job_id AND slices.start = kept.start AND jobs.id = kept.job_id
    RETURNING slices.job_id, slices.start, stop, epoch, slices.tenant_id,
              slices.model || '@' || slices.version, jobs.params
""")

_STARTED = text("""
    UPDATE jobs SET state = 'running', started_at = coalesce(started_at, now())
    WHERE id IN (SELECT id FROM jobs WHERE id = ANY(:jobs) AND state = 'queued'
                 ORDER BY id FOR UPDATE)
""")


def claim(tx: Tx, owner: int, rooms: Mapping[Model, int], lease_s: float) -> list[Lease]:
    """Takes slices for an incarnation: per model at most `rooms[model]` items, but at least one
    slice of each model that has any ready and room for it."""
    wanted = [(model, room) for model, room in rooms.items() if room > 0]
    if not wanted:
        return []
    found = tx.execute(
        _CLAIM,
        {
            "models": [model.name for model, _ in wanted],
            "versions": [model.version for model, _ in wanted],
            "rooms": [room for _, room in wanted],
            "owner": owner,
            "lease_s": lease_s,
            "max_slices": MAX_SLICES,
        },
    )
    leases = sorted((Lease(*row) for row in found), key=lambda lease: (lease.job_id, lease.start))
    if leases:
        tx.execute(_STARTED, {"jobs": list({lease.job_id for lease in leases})})
    return leases


_INPUTS = """
    SELECT s.n - 1, i.seq, i.input, i.params
    FROM unnest(%b::uuid[], %b::int[], %b::int[]) WITH ORDINALITY AS s (job_id, start, stop, n),
         LATERAL (
             SELECT seq, input, params FROM items
             WHERE items.job_id = s.job_id AND items.seq >= s.start AND items.seq < s.stop
               AND NOT EXISTS (SELECT 1 FROM results
                               WHERE results.job_id = s.job_id AND results.seq = items.seq)
             ORDER BY seq
         ) AS i
"""


def read_inputs(tx: Tx, leases: Sequence[Lease]) -> list[tuple[int, int, str, str | None]]:
    """(index of the lease, seq, input, params) of every item that has no result yet."""
    asked = [
        [lease.job_id for lease in leases],
        [lease.start for lease in leases],
        [lease.stop for lease in leases],
    ]
    rows = cursor(tx).execute(_INPUTS, asked)
    return rows.fetchall()


_MINE = """
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[]), CAST(:epochs AS int[]))
             AS mine (job_id, start, epoch)
    JOIN slices s USING (job_id, start, epoch)
"""

# Slices that a verb has locked are left as they are: a long cancel must not stop the pulse.
_RENEW = text(f"""
    UPDATE slices SET lease_until = now() + make_interval(secs => :lease_s)
    FROM (SELECT s.job_id, s.start {_MINE}
          WHERE s.state = 'leased' ORDER BY s.job_id, s.start FOR UPDATE OF s SKIP LOCKED) AS held
    WHERE slices.job_id = held.job_id AND slices.start = held.start
""")
_HELD = text(f"""
    SELECT s.job_id, s.start, j.state {_MINE} JOIN jobs j ON j.id = s.job_id
    WHERE s.state = 'leased'
""")


def renew(tx: Tx, leases: Sequence[Lease], lease_s: float) -> dict[tuple[UUID, int], str]:
    """Prolongs the leases that are still ours: (job, start) -> the state of its job. One that is
    missing from the answer is lost."""
    mine = keys(leases)
    tx.execute(_RENEW, mine | {"lease_s": lease_s})
    return {(row[0], row[1]): row[2] for row in tx.execute(_HELD, mine)}


_LOCK_LAPSED = text("""
    SELECT s.job_id, s.start FROM slices s
    WHERE s.state = 'leased' AND s.lease_until < now()
    ORDER BY s.job_id, s.start LIMIT 1000 FOR UPDATE SKIP LOCKED
""")

_RECLAIM = text("""
    UPDATE slices
    SET state = CASE WHEN j.state = 'paused' THEN 'held' ELSE 'ready' END,
        epoch = epoch + 1, lease_owner = NULL, lease_until = NULL
    FROM unnest(CAST(:jobs AS uuid[]), CAST(:starts AS int[])) AS lapsed (job_id, start)
    JOIN jobs j ON j.id = lapsed.job_id
    WHERE slices.job_id = lapsed.job_id AND slices.start = lapsed.start
    RETURNING slices.job_id, slices.start, j.state
""")


def reap(tx: Tx) -> int:
    """Takes lapsed leases away from their owners; the slices are claimable again, or ended where
    their job is being cancelled. Returns their number."""
    lapsed = tx.execute(_LOCK_LAPSED).all()
    if not lapsed:
        return 0
    values = {"jobs": [row[0] for row in lapsed], "starts": [row[1] for row in lapsed]}
    freed = tx.execute(_RECLAIM, values).all()
    cancelled = [(job, start) for job, start, state in freed if state == "cancelling"]
    if cancelled:
        end_slices(tx, cancelled, "cancelled")
        close_finished_jobs(tx, {job for job, _ in cancelled})
    notify_work(tx)
    return len(lapsed)


def keys(leases: Sequence[Lease]) -> dict[str, Any]:
    """Leases as the parameters jobs, starts, epochs."""
    return {
        "jobs": [lease.job_id for lease in leases],
        "starts": [lease.start for lease in leases],
        "epochs": [lease.epoch for lease in leases],
    }


_CLAIMABLE = text("""
    SELECT wanted.model || '@' || wanted.version, found.count
    FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[])) AS wanted (model, version),
         LATERAL (
             SELECT count(*) FROM (
                 SELECT 1 FROM slices
                 WHERE state = 'ready' AND slices.model = wanted.model
                   AND slices.version = wanted.version AND not_before <= now()
                 LIMIT :most
             ) AS counted
         ) AS found
""")


def claimable(tx: Tx, models: Iterable[Model], most: int) -> dict[str, int]:
    """Slices that could be claimed now, by model@version; counted up to `most`."""
    names = [(model.name, model.version) for model in models]
    values = {"models": [n for n, _ in names], "versions": [v for _, v in names], "most": most}
    return {row[0]: row[1] for row in tx.execute(_CLAIMABLE, values)}
