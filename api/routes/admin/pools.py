"""Pools, for operators: their load, and their autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from api.auth import audit
from api.context import Context, ContextDep
from api.dependencies import Operator
from api.schemas.common import NO_NUL
from api.schemas.pools import (
    Pool,
    PoolList,
    PoolLoad,
    ScalingPause,
    ScalingRequest,
    ScalingVerb,
)
from jobs.errors import Fault, Invalid, NotFound
from jobs.identity import Caller
from jobs.scaling import policy
from jobs.scaling.policy import Policy
from jobs.states import API_POOL
from jobs.store.db import Tx
from jobs.store.monitoring import gauges
from jobs.store.scaling import policies as store
from jobs.store.scaling.policies import PolicyRow
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.metrics import pools
from jobs.usecases import scaling
from jobs.views.pools import event_object, scaling_object

router = APIRouter(prefix="/admin/pools", tags=["pools"])

_Name = Annotated[str, Path(pattern=NO_NUL, max_length=200, examples=["default"])]


@dataclass(frozen=True, slots=True)
class Reported:
    """Reports of processes as far as they are about pools."""

    loads: Mapping[str, Mapping[str, float]]  #: figures by pool
    apis: int  #: that report


async def _reported(context: ContextDep) -> Reported:
    reports = await context.reports.read()
    return Reported(pools.figures(reports.gauge_by), len(reports.by_kind("api").reports))


Loads = Annotated[Reported, Depends(_reported)]


@router.get("")
def list_pools(context: ContextDep, caller: Operator, loads: Loads) -> PoolList:
    """Lists the pools of models and workers, and `api`, with their load and their autoscaler."""
    with context.acting(EVERYBODY) as tx:
        workers = _workers(context, tx, loads)
        rows = {row.pool: row for row in store.page(tx)}
    names = sorted({*context.models.pools(), *workers, *rows})
    return PoolList(data=[_pool(name, workers, rows.get(name), loads) for name in names])


@router.get("/{pool}")
def get_pool(context: ContextDep, caller: Operator, loads: Loads, pool: _Name) -> Pool:
    """Returns a pool with its latest events."""
    with context.acting(EVERYBODY) as tx:
        workers, row = _workers(context, tx, loads), store.get(tx, pool)
        events = store.events(tx, pool)
    if row is None and not events:
        _check_known(context, workers, pool)
    found = _pool(pool, workers, row, loads)
    shown = [event_object(event) for event in events]
    return Pool.model_validate({**found.model_dump(), "events": shown})


@router.put("/{pool}/scaling")
def set_scaling(
    request: Request, context: ContextDep, caller: Operator, loads: Loads, pool: _Name,
    body: ScalingRequest,
) -> Pool:  # fmt: skip
    """Turns the autoscaler of a pool on, or changes its policy: what the body leaves out has its
    default."""
    terms = _policy(body)
    with context.acting(EVERYBODY) as tx:
        workers = _workers(context, tx, loads)
        _check_known(context, workers, pool)
        row = scaling.set_policy(tx, pool, terms, caller.actor)
        audit.record(tx, request, caller, "scale.set", pool, **policy.dump(terms))
    return _pool(pool, workers, row, loads)


@router.delete("/{pool}/scaling")
def turn_scaling_off(
    request: Request, context: ContextDep, caller: Operator, loads: Loads, pool: _Name
) -> Pool:
    """Turns the autoscaler of a pool off: the pool keeps its workers."""
    with context.acting(EVERYBODY) as tx:
        scaling.turn_off(tx, pool, caller.actor, "")
        audit.record(tx, request, caller, "scale.off", pool)
        return _pool(pool, _workers(context, tx, loads), None, loads)


@router.post("/{pool}/scaling/pause")
def pause_scaling(
    request: Request, context: ContextDep, caller: Operator, loads: Loads, pool: _Name,
    body: ScalingPause,
) -> Pool:  # fmt: skip
    """Stops decisions about a pool; it keeps its replicas, or gets those of the body."""
    with context.acting(EVERYBODY) as tx:
        row = scaling.pause(tx, pool, caller.actor, body.reason, body.replicas)
        _record(tx, request, caller, "pause", row, body.reason)
        return _pool(pool, _workers(context, tx, loads), row, loads)


@router.post("/{pool}/scaling/resume")
def resume_scaling(
    request: Request, context: ContextDep, caller: Operator, loads: Loads, pool: _Name,
    body: ScalingVerb,
) -> Pool:  # fmt: skip
    """Lets decisions about a pool go on. Its cool-down and its minimum stay begin anew."""
    with context.acting(EVERYBODY) as tx:
        row = scaling.resume(tx, pool, caller.actor, body.reason)
        _record(tx, request, caller, "resume", row, body.reason)
        return _pool(pool, _workers(context, tx, loads), row, loads)


def _record(
    tx: Tx, request: Request, caller: Caller, act: str, row: PolicyRow, reason: str
) -> None:
    audit.record(tx, request, caller, f"scale.{act}", row.pool, replicas=row.desired, reason=reason)


def _workers(context: Context, tx: Tx, loads: Reported) -> Mapping[str, Mapping[str, int]]:
    """Returns the live workers, and apis, by pool and state."""
    found: dict[str, dict[str, int]] = {}
    for (pool, state), count in gauges.workers(tx, 2 * context.settings.lease_s).items():
        found.setdefault(pool, {})[state] = count
    return {**found, API_POOL: {"ready": loads.apis} if loads.apis else {}}


def _check_known(context: Context, workers: Mapping[str, object], pool: str) -> None:
    known = sorted({*context.models.pools(), *workers})
    if pool not in known:
        raise NotFound(f"no model or worker is in the pool {pool}; there are {', '.join(known)}")


def _pool(
    pool: str,
    workers: Mapping[str, Mapping[str, int]],
    row: PolicyRow | None,
    loads: Reported,
) -> Pool:
    figures = loads.loads.get(pool, {})
    load = {name: figures.get(name) for name in PoolLoad.model_fields}
    scaler = None if row is None else scaling_object(row)
    its = workers.get(pool, {})
    return Pool.model_validate({"pool": pool, "workers": its, "load": load, "scaling": scaler})


def _policy(body: ScalingRequest) -> Policy:
    try:
        return policy.parse(body.policy)
    except ValueError as error:
        raise Invalid(str(error), faults=[Fault(("policy",), "invalid", str(error))]) from error
