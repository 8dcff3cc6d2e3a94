"""Leases: claim, read, renew. A lease is fenced by its epoch, which only grows.

The database's clock decides; a worker's clock decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import TextClause, text

from jobs.registry import Model
from jobs.store.db import Tx, cursor

MAX_SLICES = 500
"""Slices a claim takes at most: one-item jobs come in hundreds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run one slice. params, job_class: the job's; params as JSON.

    suspect: a worker died with it, it runs alone; retrying: some of its items failed before.
    """

    job_id: UUID
    start: int
    stop: int
    epoch: int
    tenant: str
    model: str
    params: str
    suspect: bool = False
    retrying: bool = False
    job_class: str = "standard"


# The best slices of each model that this worker serves, as many as fit its room for that model.
# The innermost query locks (skipping what others hold) in the order of the index slices_ready, a
# handful more than needed; the running sum then keeps those that fit, the first in any case. Rows
# that were locked and not kept are free again at commit. Deadlines, fair shares and classes will
# change the order, and nothing else.
_CLAIM = """
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
                     WHERE state = 'ready' AND {suspect}
                       AND model = wanted.model AND version = wanted.version
                       AND not_before <= now()
                     ORDER BY priority DESC, job_id, start
                     LIMIT least(wanted.room, {most})
                     FOR UPDATE SKIP LOCKED
                 ) AS locked
                 LIMIT {most}
             ) AS ordered
        WHERE filled <= room OR place = 1
    )
    UPDATE slices
    SET state = 'leased', epoch = epoch + 1, lease_owner = :owner,
        lease_until = now() + make_interval(secs => :lease_s)
    FROM kept
    WHERE slices.job_id = kept.job_id AND slices.start = kept.start
    RETURNING slices.job_id, slices.start, stop, epoch, tenant_id, model || '@' || version,
              (SELECT params FROM jobs WHERE jobs.id = slices.job_id), suspect, retrying,
              (SELECT class FROM jobs WHERE jobs.id = slices.job_id)
"""
_CLAIM_USUAL = text(_CLAIM.format(suspect="NOT suspect", most=MAX_SLICES))
_CLAIM_SUSPECT = text(_CLAIM.format(suspect="suspect", most=1))

_STARTED = text("""
    UPDATE jobs SET state = 'running', started_at = coalesce(started_at, now())
    WHERE id IN (SELECT id FROM jobs WHERE id = ANY(:jobs) AND state = 'queued'
                 ORDER BY id FOR UPDATE)
""")


def claim(tx: Tx, owner: int, rooms: Mapping[Model, int], lease_s: float) -> list[Lease]:
    """Takes slices for an incarnation: per model at most `rooms[model]` items, but at least one
    slice of each model that has any ready and room for it. Suspects are claimed apart."""
    return _claim(tx, _CLAIM_USUAL, owner, rooms, lease_s)


def claim_suspect(tx: Tx, owner: int, model: Model, lease_s: float) -> list[Lease]:
    """Takes one suspect slice, for a worker that has nothing else in hand."""
    return _claim(tx, _CLAIM_SUSPECT, owner, {model: 1}, lease_s)


def _claim(
    tx: Tx, query: TextClause, owner: int, rooms: Mapping[Model, int], lease_s: float
) -> list[Lease]:
    wanted = [(model, room) for model, room in rooms.items() if room > 0]
    if not wanted:
        return []
    found = tx.execute(
        query,
        {
            "models": [model.name for model, _ in wanted],
            "versions": [model.version for model, _ in wanted],
            "rooms": [room for _, room in wanted],
            "owner": owner,
            "lease_s": lease_s,
        },
    )
    leases = sorted((Lease(*row) for row in found), key=lambda lease: (lease.job_id, lease.start))
    if leases:
        tx.execute(_STARTED, {"jobs": list({lease.job_id for lease in leases})})
    return leases


_SUSPECTS = text("""
    SELECT EXISTS (
        SELECT 1 FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[]))
                          AS wanted (model, version)
        JOIN slices USING (model, version)
        WHERE state = 'ready' AND suspect AND not_before <= now()
    )
""")


def suspects_wait(tx: Tx, models: Iterable[Model]) -> bool:
    """Whether any suspect slice of these models could be claimed now."""
    return bool(tx.scalar(_SUSPECTS, _names(models)))


# Index of the lease, seq, input, params, and what it failed with before. OFFSET 0 keeps the planner
# from a join: where most jobs are small it takes each for small, and scans all results of a large
# one for each of its items.
_INPUTS = """
    SELECT s.n, i.seq, i.input, i.params, {failures}
    FROM unnest(%b::int[], %b::uuid[], %b::int[], %b::int[]) AS s (n, job_id, start, stop),
         LATERAL (
             SELECT seq, input, params FROM items
             WHERE items.job_id = s.job_id AND items.seq >= s.start AND items.seq < s.stop
               AND NOT EXISTS (SELECT 1 FROM results
                               WHERE results.job_id = s.job_id AND results.seq = items.seq
                               OFFSET 0)
             ORDER BY seq
         ) AS i {attempts}
"""
_FRESH = _INPUTS.format(failures="NULL", attempts="")
_AGAIN = _INPUTS.format(
    failures="a.errors",
    attempts="""
        LEFT JOIN LATERAL (
            SELECT '[' || string_agg(error, ',' ORDER BY attempts.n) || ']' AS errors,
                   max(due_at) AS due_at
            FROM attempts WHERE attempts.job_id = s.job_id AND attempts.seq = i.seq
        ) AS a ON true
        WHERE a.due_at IS NULL OR a.due_at <= now()
    """,
)

InputRow: TypeAlias = tuple[int, int, str, str | None, str | None]


def read_inputs(tx: Tx, leases: Sequence[Lease]) -> list[InputRow]:
    """(index of the lease, seq, input, params, earlier failures as a JSON array) of every item
    that has no result yet and is not waiting for its next attempt."""
    rows: list[InputRow] = []
    for query, retrying in ((_FRESH, False), (_AGAIN, True)):
        asked = [
            (n, lease.job_id, lease.start, lease.stop)
            for n, lease in enumerate(leases)
            if lease.retrying is retrying
        ]
        if asked:
            columns = [list(column) for column in zip(*asked, strict=True)]
            rows += cursor(tx).execute(query, columns).fetchall()
    return rows


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


def keys(leases: Sequence[Lease]) -> dict[str, Any]:
    """Leases as the parameters jobs, starts, epochs."""
    return {
        "jobs": [lease.job_id for lease in leases],
        "starts": [lease.start for lease in leases],
        "epochs": [lease.epoch for lease in leases],
    }


# In the order of their indexes: any other plan may walk a million slices that are done.
_CLAIMABLE = text("""
    SELECT wanted.model || '@' || wanted.version, found.count
    FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[])) AS wanted (model, version),
         LATERAL (
             SELECT count(*) FROM (
                 (SELECT 1 FROM slices
                  WHERE state = 'ready' AND NOT suspect AND slices.model = wanted.model
                    AND slices.version = wanted.version AND not_before <= now()
                  ORDER BY priority DESC, job_id, start LIMIT :most)
                 UNION ALL
                 (SELECT 1 FROM slices
                  WHERE state = 'ready' AND suspect AND slices.model = wanted.model
                    AND slices.version = wanted.version AND not_before <= now()
                  ORDER BY priority DESC, job_id, start LIMIT :most)
                 LIMIT :most
             ) AS counted
         ) AS found
""")


def claimable(tx: Tx, models: Iterable[Model], most: int) -> dict[str, int]:
    """Slices that could be claimed now, by model@version; counted up to `most`."""
    found = tx.execute(_CLAIMABLE, _names(models) | {"most": most})
    return {row[0]: row[1] for row in found}


# What is leased may come back; what is held belongs to a job that is paused.
_UNFINISHED = text("""
    SELECT wanted.model || '@' || wanted.version
    FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[])) AS wanted (model, version)
    WHERE EXISTS (SELECT 1 FROM slices s WHERE s.state = 'ready' AND NOT s.suspect
                    AND s.model = wanted.model AND s.version = wanted.version)
       OR EXISTS (SELECT 1 FROM slices s WHERE s.state = 'ready' AND s.suspect
                    AND s.model = wanted.model AND s.version = wanted.version)
       OR EXISTS (SELECT 1 FROM slices s WHERE s.state = 'leased'
                    AND s.model = wanted.model AND s.version = wanted.version)
""")


def unfinished(tx: Tx, models: Iterable[Model]) -> set[str]:
    """Which of these models have slices that are ready, now or later, or leased."""
    return set(tx.scalars(_UNFINISHED, _names(models)))


def _names(models: Iterable[Model]) -> dict[str, Any]:
    listed = list(models)
    return {"models": [m.name for m in listed], "versions": [m.version for m in listed]}
