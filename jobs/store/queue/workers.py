"""Workers, the models that they hold, and their launches."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from jobs.store import queries
from jobs.store.db import Tx, cursor, lock
from jobs.store.tables import launches, slices, worker_models, workers

Death = Literal["killed", "crashed", "hung", "sick"]
"""killed: from outside; crashed: by what it did, memory included; hung: it had to be ended; sick:
its device failed before anything worked on it."""

ModelState = Literal[
    "absent", "verifying", "staging", "loading", "warming", "ready", "draining", "failed"
]
"""State of a model in a worker; see workers/process/residency.py."""

LOADING_STATES: tuple[ModelState, ...] = ("verifying", "staging", "loading", "warming")
"""States of a model on its way to "ready", in their order."""

LIVING_STATES = ("loading", "ready", "draining")
"""States of workers that have not ended."""

_w, _m = workers.c, worker_models.c


def _alive(silent_s: float) -> Any:
    """Filters out workers that ended or are silent: they hold nothing."""
    since = func.now() - timedelta(seconds=silent_s)
    return and_(_w.state.in_(LIVING_STATES), _w.heartbeat_at > since)


def _held(query: Select[Any], silent_s: float) -> Select[Any]:
    """Models that living workers hold."""
    return query.join_from(worker_models, workers).where(_alive(silent_s))


def register(
    tx: Tx, name: str, pool: str, device: str, models: Sequence[str], spot_notice_s: float = 0.0
) -> int:
    """Adds a worker that loads its models; returns its incarnation, a number never used again.

    spot_notice_s: before its machine may be reclaimed; 0: never.
    """
    values = {
        "name": name, "pool": pool, "device": device, "models": list(models),
        "spot_notice_s": spot_notice_s,
    }  # fmt: skip
    new = insert(workers).values(values | {"state": "loading"}).returning(_w.incarnation)
    incarnation: int = tx.scalars(new).one()
    return incarnation


_state = bindparam("now", type_=Text)
# One index look-up a beat, and the answer to a request to drain with it.
_HEARTBEAT = (
    update(workers)
    .where(_w.incarnation == bindparam("worker"))
    .values(heartbeat_at=func.now(), state=_state)
    .values(ended_at=case((_state == "stopped", func.now())))
    .returning(_w.drain_asked_at.is_not(None))
)


def heartbeat(tx: Tx, incarnation: int, state: str) -> bool:
    """Records that a worker lives, and its state; returns True if it is asked to drain."""
    return bool(tx.scalar(_HEARTBEAT, {"worker": incarnation, "now": state}))


def record_watched(tx: Tx, incarnation: int) -> None:
    """Records that its supervisor sees a worker alive, even where the worker can't say so."""
    its = update(workers).where(_w.incarnation == incarnation)
    tx.execute(its.values(watched_at=func.now()))


def report_death(tx: Tx, incarnation: int, how: Death, device_error: str = "") -> None:
    """Records the death that a supervisor saw, or one by the device that the worker reports.

    Slices of a killed worker are freed at no cost; those of a sick one run alone next, and those
    of any other are accused besides.
    """
    its = update(workers).where(_w.incarnation == incarnation, _w.ended_at.is_(None))
    values = {"died": how, "device_error": device_error or None}
    tx.execute(its.values(state="lost", ended_at=func.now(), **values))


def quarantine(tx: Tx, incarnation: int) -> None:
    """Records that the supervisor of a dead worker starts no other in its place, until an operator
    resumes it."""
    its = update(workers).where(_w.incarnation == incarnation)
    now = func.now()
    tx.execute(its.values(state="quarantined", drain_asked_at=now, watched_at=now))


def is_quarantined(tx: Tx, incarnation: int) -> bool:
    """Records that its supervisor waits for an operator; returns False once it was resumed."""
    its = update(workers).where(_w.incarnation == incarnation, _w.state == "quarantined")
    state = case((_w.drain_asked_at.is_(None), literal("lost")), else_=_w.state)
    left = its.values(watched_at=func.now(), state=state).returning(_w.state)
    return bool(tx.scalar(left) == "quarantined")


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that fell silent."""

    incarnation: int
    pool: str
    unwarned: bool  #: it is spot, and there was no notice of its reclaim


def mark_lost(tx: Tx, silent_s: float) -> list[LostWorker]:
    """Marks workers that have been silent for so long as lost; returns them."""
    silent = _w.heartbeat_at < func.now() - timedelta(seconds=silent_s)
    lost = update(workers).where(_w.state.in_(LIVING_STATES), silent)
    unwarned = and_(_w.spot_notice_s > 0, _w.reclaimed_by.is_(None)).label("unwarned")
    found = lost.values(state="lost").returning(_w.incarnation, _w.pool, unwarned)
    return [LostWorker(*row) for row in tx.execute(found)]


def mark_reclaimed(tx: Tx, incarnation: int, by: str) -> str | None:
    """Records by which notice a spot worker is reclaimed; returns its pool. Returns None where that
    is recorded already."""
    its = update(workers).where(_w.incarnation == incarnation, _w.reclaimed_by.is_(None))
    pool: str | None = tx.scalar(its.values(reclaimed_by=by).returning(_w.pool))
    return pool


def count_succeeding_elsewhere(tx: Tx, incarnation: int, jobs: Collection[UUID]) -> int:
    """Counts those of the jobs that have slices which other workers finished with successes."""
    s = slices.c
    query = select(func.count(s.job_id.distinct())).where(
        s.job_id.in_(jobs), s.state == "done", s.worker != incarnation, s.n_succeeded > 0
    )
    return tx.scalars(query).one()


def ready_counts(tx: Tx, silent_s: float) -> dict[str, int]:
    """Counts workers in which a model is ready, by name@version."""
    query = _held(select(_m.model, func.count()), silent_s).group_by(_m.model)
    ready = query.where(_m.state == "ready", _w.state != "draining")
    return queries.pairs(tx, ready)


def ready_on_demand(tx: Tx, silent_s: float, models: Collection[str]) -> set[str]:
    """Returns those of these models (name@version) that are ready in a worker that isn't spot."""
    query = _held(select(_m.model).distinct(), silent_s).where(_m.model.in_(models))
    ready = query.where(_m.state == "ready", _w.state != "draining", _w.spot_notice_s == 0)
    return set(tx.scalars(ready))


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model over all workers."""

    states: Mapping[ModelState, int]  #: workers that have it, by state
    load_ms: float  #: longest time that loading took, ms; 0: not known
    error: str  #: reason of its failure; empty: none


NOWHERE = ModelStatus({}, 0.0, "")


def model_statuses(tx: Tx, silent_s: float) -> dict[str, ModelStatus]:
    """Returns the status of every model that a living worker knows, by name@version."""
    draining = (_w.state == "draining") & (_m.state == "ready")
    state = case((draining, literal("draining")), else_=_m.state)
    query = _held(
        select(_m.model, state, func.count(), func.max(_m.load_ms), func.max(_m.error)), silent_s
    )
    found: dict[str, ModelStatus] = {}
    for model, its, count, load_ms, error in tx.execute(query.group_by(_m.model, state)):
        old = found.get(model, NOWHERE)
        states = {**old.states, its: count}
        found[model] = ModelStatus(states, max(load_ms, old.load_ms), max(error, old.error))
    return found


def drained(tx: Tx, silent_s: float) -> dict[str, tuple[int, ...]]:
    """Returns the living workers that an operator drained, by each model that they know."""
    of = func.array_agg(_m.incarnation)
    query = _held(select(_m.model, of), silent_s).where(_w.drain_asked_at.is_not(None))
    return {model: tuple(sorted(ids)) for model, ids in tx.execute(query.group_by(_m.model))}


@dataclass(frozen=True, slots=True)
class HeldModels:
    """Models that are ready in a worker."""

    incarnation: int
    name: str  #: host:pid
    models: tuple[str, ...]  #: name@version


def held(tx: Tx, pool: str, silent_s: float) -> list[HeldModels]:
    """Returns the living workers of a pool, the oldest first, without those that end; one that an
    operator drained has no model."""
    drained = _w.drain_asked_at.is_not(None)
    ready = (_m.incarnation == _w.incarnation) & (_m.state == "ready") & ~drained
    models = func.array_agg(_m.model).filter(_m.model.is_not(None))
    query = (
        select(_w.incarnation, _w.name, models)
        .join(worker_models, ready, isouter=True)
        .where(_w.pool == pool, _alive(silent_s), (_w.state != "draining") | drained)
        .group_by(_w.incarnation)
        .order_by(_w.incarnation)
    )
    return [HeldModels(id, name, tuple(models or ())) for id, name, models in tx.execute(query)]


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model in one worker."""

    model: str  #: name@version
    state: ModelState  #: state of the model in this worker
    memory_mb: float  #: memory that it takes, MB
    load_ms: float  #: time that loading took, ms; 0: not loaded yet
    error: str  #: reason of its failure; empty: none


def report_models(tx: Tx, incarnation: int, rows: Sequence[ModelRow]) -> None:
    """Replaces the states of all models of a worker."""
    names = [row.model for row in rows]
    its = delete(worker_models).where(_m.incarnation == incarnation)
    tx.execute(its.where(_m.model.not_in(names)))
    if not rows:
        return
    new = upsert(worker_models).values([{"incarnation": incarnation} | asdict(r) for r in rows])
    same = new.excluded
    values: dict[str, Any] = {
        name: same[name] for name in ("state", "memory_mb", "load_ms", "error")
    }
    values["since"] = case((_m.state == same.state, _m.since), else_=func.now())
    keys = ["incarnation", "model"]
    tx.execute(new.on_conflict_do_update(index_elements=keys, set_=values))


def claim_load(tx: Tx, incarnation: int, model: str, silent_s: float, *, most: int = 1) -> bool:
    """Marks a model as loading in this worker, unless so many living workers have it or load it.

    Returns True if this worker is to load it. `report_models` has made its row.
    """
    lock(tx, "millrace.loads")  # one worker at a time decides: the next one sees its row
    m = worker_models.alias()
    others = (
        select(func.count())
        .where(m.c.incarnation == _w.incarnation, _alive(silent_s), m.c.model == model)
        .where(m.c.incarnation != incarnation, _w.state != "draining")
        .where(m.c.state.in_((*LOADING_STATES, "ready")))
        .scalar_subquery()
    )
    its = update(worker_models).where(_m.incarnation == incarnation, _m.model == model)
    load = its.where(others < most).values(state="loading", since=func.now(), error="")
    return tx.execute(load).rowcount > 0


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One launch."""

    id: int  #: `incarnation << 32 | number`
    incarnation: int  #: its worker
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
    batch_ms: float | None = 0.0  #: time from closing it until the device had it, ms


def launches_of(incarnation: ColumnElement[int]) -> ColumnElement[bool]:
    """Filters by a worker: a range of the primary key, since ids begin with the incarnation."""
    bits: ColumnElement[int] = literal_column("32")
    low, high = incarnation.bitwise_lshift(bits), (incarnation + 1).bitwise_lshift(bits)
    return (launches.c.id >= low) & (launches.c.id < high)


# Arrays by the driver, in one statement: launches come by the hundred.
_INSERT_LAUNCHES = """
    INSERT INTO launches (id, incarnation, model, version, bucket, reason, items, calls, units,
                          padded_units, predicted_ms, engine_ms, started_at, batch_ms)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[],
                         %s::int[], %s::int[], %s::int[], %s::int[], %s::real[], %s::real[],
                         %s::timestamptz[], %s::real[])
    ON CONFLICT DO NOTHING
"""


def insert_launches(tx: Tx, rows: Sequence[LaunchRow]) -> None:
    """Stores launches; harmless to repeat."""
    if rows:
        names = LaunchRow.__slots__
        columns = [[getattr(row, name) for row in rows] for name in names]
        cursor(tx).execute(_INSERT_LAUNCHES, columns)
