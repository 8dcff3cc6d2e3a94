"""Workers as people look at them, and the request to drain one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Double, case, cast, func, literal, or_, select, text, update

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.queue.workers import LIVING_STATES
from jobs.store.tables import worker_models, workers

_MOST = 500
_SHOWN = timedelta(hours=1)
"""Time for which a worker is shown after its end."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One incarnation of a worker."""

    incarnation: int  #: its id
    name: str  #: name of its process
    pool: str  #: pool that it works for
    device: str  #: `cpu`, `cuda:0`, …
    models: list[str]  #: models that it may hold, name@version
    state: str  #: loading, ready, draining, stopped or lost
    started_at: datetime  #: time of its start
    heartbeat_at: datetime  #: time of its last heartbeat
    died: str | None  #: killed, crashed or hung; None: nobody saw it die
    ended_at: datetime | None  #: time of its end
    drain_asked_at: datetime | None  #: time at which it was asked to drain
    silent_s: float  #: time since its last heartbeat, s


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model in a worker."""

    incarnation: int  #: the worker
    model: str  #: name@version
    state: str  #: state of the model in this worker
    memory_mb: float  #: memory that it takes, MB; 0: not known
    load_ms: float  #: time that loading took, ms; 0: not known
    error: str  #: reason of its failure; empty: none
    since: datetime  #: time of the last change of its state


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """A launch of a worker."""

    id: int  #: `incarnation << 32 | number`
    incarnation: int  #: the worker
    model: str  #: name of the model
    version: str  #: its version
    bucket: int  #: padded length or size
    reason: str  #: flush reason
    items: int  #: items in it
    calls: int  #: calls in it
    units: int  #: units of its entries
    padded_units: int  #: units that the device computed
    predicted_ms: float  #: predicted time on the device, ms
    engine_ms: float  #: time on the device, ms
    started_at: datetime  #: start on the device


_w = workers.c
_ROWS = select(
    *queries.columns(WorkerRow, workers),
    cast(func.extract("epoch", func.now() - _w.heartbeat_at), Double),
)
_PAGE = (
    _ROWS.where(
        or_(
            _w.state.in_(LIVING_STATES),
            func.coalesce(_w.ended_at, _w.heartbeat_at) > func.now() - _SHOWN,
        )
    )
    .order_by(_w.state.in_(("stopped", "lost")), _w.pool, _w.incarnation.desc())
    .limit(_MOST)
)


def page(tx: Tx) -> Sequence[WorkerRow]:
    """Lists living workers first, then those that ended in the last hour."""
    return queries.many(tx, WorkerRow, _PAGE)


def one(tx: Tx, incarnation: int) -> WorkerRow | None:
    """Returns a worker, or None."""
    return queries.one(tx, WorkerRow, _ROWS.where(_w.incarnation == incarnation))


def held(tx: Tx, incarnations: Collection[int]) -> Sequence[HeldModel]:
    """Lists the models of these workers, by worker and name."""
    table = worker_models
    query = select(*queries.columns(HeldModel, table)).where(table.c.incarnation.in_(incarnations))
    return queries.many(tx, HeldModel, query.order_by(table.c.incarnation, table.c.model))


# The id of a launch begins with the incarnation's: the last ones of a worker are a range of the
# primary key. LATERAL reads the end of each range, `most` rows of it, whatever the statistics say.
_LAUNCHES = text("""
    SELECT l.* FROM unnest(CAST(:incarnations AS bigint[])) AS w (incarnation), LATERAL (
        SELECT id, incarnation, model, version, bucket, reason, items, calls, units, padded_units,
               predicted_ms, engine_ms, started_at
        FROM launches
        WHERE id >= w.incarnation << 32 AND id < (w.incarnation + 1) << 32
        ORDER BY id DESC LIMIT :most
    ) AS l
    WHERE CAST(:model AS text) IS NULL OR (l.model, l.version) = (:model, :version)
""")


def launches(
    tx: Tx, incarnations: Collection[int], most: int, model: str = ""
) -> Sequence[WorkerLaunch]:
    """Lists the last launches of each of these workers; model: of this name@version alone."""
    name, _, version = model.partition("@")
    values = {"incarnations": list(incarnations), "most": most}
    values |= {"model": name or None, "version": version}
    return queries.many(tx, WorkerLaunch, _LAUNCHES, values)


def request_drain(tx: Tx, incarnation: int, drain: bool) -> bool:
    """Asks a worker to take no more work, or to take work again; False: it has ended.

    The worker reads the request with its next heartbeat.
    """
    asked_at = case((literal(drain), func.coalesce(_w.drain_asked_at, func.now())))
    its = _w.incarnation == incarnation, _w.ended_at.is_(None)
    return tx.execute(update(workers).where(*its).values(drain_asked_at=asked_at)).rowcount > 0
