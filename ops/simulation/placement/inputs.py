"""Inputs of a plan for a history: what it asks of each model, and what each kind gives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import click

from jobs.calls.lanes import bucket_of
from jobs.errors import UnknownModel
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.scaling.placement.demand import Demand, Kind, Point, rate_within
from ops.simulation.devices import Device
from ops.simulation.history import Row
from workers.scheduler.cost import LaunchSize
from workers.scheduler.snapshot import LaneView, Rules
from workers.simulation.costs import LaunchTimes

MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """Terms of a plan."""

    quantile: float  #: of the minutes, whose calls are planned for
    load_factor: float  #: of all that comes, for growth
    utilisation: float  #: load of a device, that leaves room for bursts


@dataclass(frozen=True, slots=True)
class Work:
    """Work that a history asks of one model."""

    model: Model
    calls_per_s: float  #: of the minute that is planned for
    items_per_s: float  #: on average: they can wait
    size: float  #: mean, in the model's unit


def works(
    rows: Sequence[Row], models: Registry, request: HistoryRequest
) -> tuple[list[Work], list[str]]:
    """Returns the work of all models, and those that are left out, with the reason."""
    found, left_out = list[Work](), list[str]()
    for name in sorted({row.name for row in rows if row.kind != "work"}):
        try:
            model = models.resolve(name)
        except UnknownModel:
            left_out.append(f"{name} is not in the models file")
            continue
        if model.spec.generates:
            left_out.append(f"{name} generates: see `millrace simulate --generation`")
        else:
            found.append(_work(model, rows, request))
    if not found:
        raise click.ClickException(f"no model to plan for: {'; '.join(left_out) or 'no calls'}")
    return found, left_out


def duration_s(rows: Sequence[Row]) -> float:
    """Returns the time from the first row to the end of the last."""
    return max(row.t_s + row.lasts_s for row in rows) - min(row.t_s for row in rows)


def _work(model: Model, rows: Sequence[Row], request: HistoryRequest) -> Work:
    its, lasts_s = [row for row in rows if row.name == model.key], duration_s(rows)
    rates = sorted(row.count / row.lasts_s for row in its if row.kind == "calls")
    silent = max(0, round(lasts_s / MINUTE_S) - len(rates))  # minutes without any call
    at = ceil(request.quantile * (silent + len(rates))) - 1 - silent
    calls = rates[at] if at >= 0 else 0.0
    items = sum(row.count for row in its if row.kind == "items") / lasts_s
    count = sum(row.count for row in its)
    size = max(1.0, sum(row.units for row in its) / count) if count else 1.0
    return Work(model, request.load_factor * calls, request.load_factor * items, size)


def demand(work: Work, devices: Sequence[Device], times: Mapping[str, LaunchTimes]) -> Demand:
    """Returns the demand of a model, with its rate on each kind by the launches that its target
    allows. times: by name@version, for devices of which none are known."""
    model, rates = work.model, dict[str, float]()
    for device in devices:
        own = device.own_times(model)
        if own is None and model.key in times:
            own = times[model.key].faster(device.speed)
        if own and (rate := rate_within(_points(model, own, work.size), model.target_ms)):
            rates[device.name] = rate
    memory_gib = max(device.model_gib(model) for device in devices)
    return Demand(model.key, memory_gib, work.calls_per_s + work.items_per_s, rates)


def kind(device: Device) -> Kind:
    """Returns a kind with the mean price of its regular and spot devices. Raises
    click.ClickException where it has no memory or price."""
    missing = [name for name in ("memory_gib", "price_per_hour") if getattr(device, name) is None]
    if missing:
        raise click.ClickException(f"the device {device.name!r} has no {' and no '.join(missing)}")
    return Kind(device.name, device.memory_gib or 0.0, device.mean_price or 0.0, device.most)


def _points(model: Model, times: LaunchTimes, size: float) -> Iterator[Point]:
    """Yields the launches of 1, 2, 4, … rows and of a full one."""
    rules, bucket = Rules.from_model(model), bucket_of(ceil(size), model.buckets)
    full = rules.full_rows(LaneView("", bucket, items=1, items_units=ceil(size)))
    each = bucket if rules.pads and bucket else size
    for rows in sorted({*(1 << n for n in range(full.bit_length())), full}):
        launch_s = times.mean_s(LaunchSize.alike(rows, each, bucket))
        yield Point(rows, launch_s * 1000, model.limits.in_flight * rows / launch_s)
