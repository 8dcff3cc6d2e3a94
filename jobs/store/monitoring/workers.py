"""Workers as people look at them, and the request to drain one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ARRAY, BigInteger, bindparam, column, func, or_, select, true, update

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.queue.workers import LIVING_STATES, LaunchRow, ModelRow, launches_of
from jobs.store.tables import launches as launch_table
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
    state: str  #: loading, ready, draining, stopped, lost or quarantined
    started_at: datetime  #: time of its start
    heartbeat_at: datetime  #: time of its last heartbeat
    died: str | None  #: killed, crashed, hung or sick; None: nobody saw it die
    device_error: str | None  #: error of its device, where it ended by that
    ended_at: datetime | None  #: time of its end
    drain_asked_at: datetime | None  #: time at which it was asked to drain
    spot_notice_s: float  #: before its machine may be reclaimed, s; 0: never
    reclaimed_by: str | None  #: notice by which it was; silence: without one
    silent_s: float  #: time since its last heartbeat, s


@dataclass(frozen=True, slots=True)
class HeldModel(ModelRow):
    """A model in a worker, as people look at it."""

    incarnation: int  #: the worker
    since: datetime  #: time of the last change of its state


_w = workers.c
_ROWS = select(
    *queries.columns(WorkerRow, workers),
    queries.age_s(_w.heartbeat_at),
)
_PAGE = (
    _ROWS.where(
        or_(
            _w.state.in_(LIVING_STATES),
            func.coalesce(_w.ended_at, _w.heartbeat_at) > func.now() - _SHOWN,
            (_w.state == "quarantined") & (_w.watched_at > func.now() - _SHOWN),
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


_of = func.unnest(bindparam("incarnations", type_=ARRAY(BigInteger)))
_asked = _of.table_valued(column("incarnation", BigInteger), name="w").render_derived()
# LATERAL reads the end of each worker's range of ids, `most` rows of it, whatever the statistics
# say.
_last = (
    select(*queries.columns(LaunchRow, launch_table))
    .where(launches_of(_asked.c.incarnation))
    .order_by(launch_table.c.id.desc())
    .limit(bindparam("most"))
    .lateral("l")
)
_LAUNCHES = select(_last).select_from(_asked.join(_last, true()))


def launches(
    tx: Tx, incarnations: Collection[int], most: int, model: str = ""
) -> Sequence[LaunchRow]:
    """Lists the last launches of each of these workers; model: of this name@version alone."""
    name, _, version = model.partition("@")
    query = _LAUNCHES
    if model:
        query = query.where(_last.c.model == name, _last.c.version == version)
    return queries.many(tx, LaunchRow, query, {"incarnations": list(incarnations), "most": most})


def request_drain(tx: Tx, incarnation: int, drain: bool) -> bool:
    """Asks a worker to take no more work, or to take work again; False: it has ended.

    The worker reads the request with its next heartbeat, the supervisor of a quarantined one as
    soon.
    """
    asked_at = func.coalesce(_w.drain_asked_at, func.now()) if drain else None
    open_ = or_(_w.ended_at.is_(None), _w.state == "quarantined")
    its = _w.incarnation == incarnation, open_
    return tx.execute(update(workers).where(*its).values(drain_asked_at=asked_at)).rowcount > 0
