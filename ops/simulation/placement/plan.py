"""Plan for all models of a history: devices, what they cost, and what they miss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import click

from jobs.models.registry import Registry
from jobs.scaling.placement.demand import Demand, Kind, problems_of
from jobs.scaling.placement.plan import Plan, place
from jobs.scaling.placement.routing import served
from jobs.scaling.policy import Policy
from ops.simulation.devices import Device
from ops.simulation.history import Row, by_time
from ops.simulation.placement import inputs
from ops.simulation.placement.inputs import MINUTE_S, HistoryRequest, Work
from ops.simulation.scaling.controllers import Autoscaler
from ops.simulation.scaling.fluid import Load, Run, simulate
from workers.simulation.costs import LaunchTimes

OVERLOAD = 1.5
"""Times the demand that a plan is tried with."""
_STEP_S = 2.0  # of the simulation of an autoscaler

Minutes = Sequence[Mapping[str, float]]  # entries a second, by model


@dataclass(frozen=True, slots=True)
class KindPlan:
    """Devices of one kind in a plan."""

    device: Device
    replicas: int
    scaled: Run  #: an autoscaler's, on the calls that are planned for them
    scaled_replicas: float  #: its mean, with those that boot


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """Plan for a history."""

    lasts_s: float  #: of the history
    works: Sequence[Work]
    demands: Sequence[Demand]  #: of the same models
    all_kinds: Sequence[Kind]  #: those that were to choose from
    left_out: Sequence[str]  #: models that aren't planned for, and why
    plan: Plan
    kinds: Sequence[KindPlan]
    missed: float  #: share of the history's calls that the plan has no time for
    missed_overload: float  #: the same of 1.5 times the demand

    @property
    def price(self) -> float:
        """Price of all devices an hour."""
        return sum(kind.device.price(kind.replicas) or 0.0 for kind in self.kinds)


def plan_history(
    rows: Sequence[Row], models: Registry, devices: Sequence[Device],
    times: Mapping[str, LaunchTimes], request: HistoryRequest,
) -> HistoryPlan:  # fmt: skip
    """Plans devices for a history. times: of models whose devices have none, by name@version.

    Raises click.ClickException where a model fits nowhere.
    """
    works, left_out = inputs.works(rows, models, request)
    kinds = [inputs.kind(device) for device in devices]
    demands = [inputs.demand(work, devices, times) for work in works]
    if problems := problems_of(demands, kinds):
        raise click.ClickException("; ".join(problems))
    plan = place(demands, kinds, most_used=request.utilisation)
    by_model = {demand.model: demand for demand in demands}
    minutes = _minutes(rows, by_model, request.load_factor)
    overload = {demand.model: OVERLOAD * demand.per_s for demand in demands}
    return HistoryPlan(
        inputs.duration_s(rows), works, demands, kinds, left_out, plan,
        kinds=[_scaled(device, plan, by_model, minutes, request.utilisation)
               for device in devices if device.name in plan.counts],
        missed=_missed(plan, by_model, minutes),
        missed_overload=_missed(plan, by_model, [overload]),
    )  # fmt: skip


def _minutes(rows: Sequence[Row], demands: Mapping[str, Demand], factor: float) -> Minutes:
    """Returns the calls of each minute, those without any included."""
    found = by_time(rows, "calls")
    first, count = min(row.t_s for row in rows), round(inputs.duration_s(rows) / MINUTE_S)
    return [
        {
            name: factor * per_s
            for name, per_s in found.get(first + n * MINUTE_S, {}).items()
            if name in demands
        }
        for n in range(count)
    ]


def _missed(plan: Plan, demands: Mapping[str, Demand], minutes: Minutes) -> float:
    came = sum(sum(its.values()) for its in minutes)
    done = sum(sum(served(plan.devices, demands, its).values()) for its in minutes)
    return 1 - done / came if came else 0.0


def _scaled(
    device: Device, plan: Plan, demands: Mapping[str, Demand], minutes: Minutes, utilisation: float
) -> KindPlan:
    """Returns the devices of one kind, and what an autoscaler would have of them."""
    replicas = plan.counts[device.name]
    each_s = {name: _device_s(device, plan, demand) for name, demand in demands.items()}
    work = [
        _STEP_S * sum(per_s * each_s[name] for name, per_s in its.items())
        for its in minutes
        for _ in range(round(MINUTE_S / _STEP_S))
    ]
    load = Load(work, _STEP_S)
    policy = Policy(max_replicas=2 * replicas, boot_s=device.boot_s, target_used=utilisation)
    first = policy.clamp(ceil(load.mean / utilisation))
    run = simulate(Autoscaler(policy, first), load, device.boot_s, first)
    return KindPlan(device, replicas, run, run.replica_s / (len(work) * _STEP_S))


def _device_s(device: Device, plan: Plan, demand: Demand) -> float:
    """Returns the seconds of devices of this kind that an entry takes, on average over all entries:
    0 where none is planned there."""
    loads = [(its.kind, its.load.get(demand.model, 0.0)) for its in plan.devices]
    planned = sum(load * demand.rates.get(kind, 0.0) for kind, load in loads)
    here = sum(load for kind, load in loads if kind == device.name)
    return here / planned if planned else 0.0
