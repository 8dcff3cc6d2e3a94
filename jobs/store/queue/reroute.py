"""Slices of routed jobs whose version takes nothing new: those that wait go over to another one.
Slices of any job whose preparation nobody does any more go on to their model."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text

from jobs.models.model import PREPARATION, Model
from jobs.states import PREPARE_POOL
from jobs.store import queries
from jobs.store.db import Tx, notify_work
from jobs.store.queue import fair_share
from jobs.store.tables import jobs

MOST_SLICES = 1000
"""Most slices that one transaction moves: claims of all pools wait for its end."""


@dataclass(frozen=True, slots=True)
class RoutedJobs:
    """Open jobs of one tenant that were accepted for one version, and whose slices go by routes."""

    model: str  #: name of the model
    tenant_id: str
    version: str


_j = jobs.c
_OPEN = (
    select(_j.model, _j.tenant_id, _j.version)
    .where(text("versioning = 'routed' AND finished_at IS NULL"), _j.model != "")
    .distinct()
)


def open_jobs(tx: Tx) -> list[RoutedJobs]:
    """Returns the open routed jobs, by what they were accepted for."""
    return queries.many(tx, RoutedJobs, _OPEN)


# A slice with a result keeps its version: its results are of one. Written out, both, for the arrays
# and the lock of one table of a join.
_WAITING = """
    FROM jobs j JOIN slices s ON s.job_id = j.id
    WHERE j.versioning = 'routed' AND j.finished_at IS NULL AND j.model = :model
      AND j.tenant_id = :tenant_id AND j.version = :version
      AND s.state <> 'done' AND s.state IN ('ready', 'held') AND s.version <> ALL(:lasting)
      AND s.n_succeeded + s.n_failed + s.n_cancelled + s.n_expired = 0
"""
_ANY = text(f"SELECT EXISTS (SELECT {_WAITING})")
# What another version began to generate is dropped.
_MOVE = text(f"""
    WITH waiting AS (
        SELECT s.job_id, s.start {_WAITING}
        ORDER BY s.job_id, s.start LIMIT {MOST_SLICES} FOR UPDATE OF s SKIP LOCKED
    ), moved AS (
        UPDATE slices SET version = :to FROM waiting
        WHERE slices.job_id = waiting.job_id AND slices.start = waiting.start
        RETURNING slices.job_id, slices.start, slices.stop
    ), dropped AS (
        DELETE FROM checkpoints USING moved
        WHERE checkpoints.job_id = moved.job_id
          AND checkpoints.seq >= moved.start AND checkpoints.seq < moved.stop
    )
    SELECT count(*) FROM moved
""")


def move(tx: Tx, its: RoutedJobs, to: str, lasting: Collection[str], pools: Iterable[str]) -> int:
    """Gives slices that wait and have no result another version, unless theirs is one of `lasting`;
    returns their number.

    No claim of these pools is under way meanwhile: what it claims has the version that it looked
    for. The transaction sees all tenants.
    """
    values: dict[str, Any] = {"lasting": list(lasting), "to": to}
    values |= {"model": its.model, "tenant_id": its.tenant_id, "version": its.version}
    if not tx.scalar(_ANY, values):
        return 0
    for pool in sorted(pools):
        fair_share.lock_pool(tx, pool)
    moved: int = tx.scalars(_MOVE, values).one()
    if moved:
        notify_work(tx)
    return moved


# Through the two indexes of slices that are ready. A paused job's go on once it is resumed; what
# killed workers stays suspect, since it isn't prepared yet.
_GO_ON = [
    text(f"""
        UPDATE slices SET version = :to
        FROM (SELECT job_id, start FROM slices
              WHERE state = 'ready' AND {suspect} AND model = :model AND version = :version
              ORDER BY job_id, start LIMIT {MOST_SLICES} FOR UPDATE SKIP LOCKED) AS waiting
        WHERE slices.job_id = waiting.job_id AND slices.start = waiting.start
    """)
    for suspect in ("NOT suspect", "suspect")
]
_ANY_READY = text("""
    SELECT EXISTS (SELECT FROM slices WHERE state = 'ready' AND NOT suspect AND model = :model
                                        AND version = :version)
        OR EXISTS (SELECT FROM slices WHERE state = 'ready' AND suspect AND model = :model
                                        AND version = :version)
""")


def skip_preparation(tx: Tx, model: Model, pools: Iterable[str]) -> int:
    """Lets slices go on to a model that workers of their own prepared items for, and do no more;
    returns their number. pools, and the transaction: as for `move`."""
    stage = model.version + PREPARATION
    values = {"model": model.name, "version": stage, "to": model.version}
    if not tx.scalar(_ANY_READY, values):
        return 0
    for pool in sorted({*pools, PREPARE_POOL}):
        fair_share.lock_pool(tx, pool)
    moved = sum(tx.execute(query, values).rowcount for query in _GO_ON)
    if moved:
        notify_work(tx)
    return moved


# A living worker has failed to load each, and none has it, or loads it.
_UNLOADABLE = text("""
    SELECT m.model FROM worker_models m JOIN workers w USING (incarnation)
    WHERE m.model = ANY(:models) AND w.ended_at IS NULL
    GROUP BY m.model HAVING bool_and(m.state = 'failed')
""")


def unloadable(tx: Tx, models: Collection[str]) -> set[str]:
    """Returns those of these versions (name@version) that no worker could load."""
    return set(tx.scalars(_UNLOADABLE, {"models": list(models)}))
