"""Plans for a history, as a table and as JSON."""

from collections.abc import Iterator
from math import ceil
from typing import Any

from ops.simulation.placement.exact import Exact
from ops.simulation.placement.inputs import HistoryRequest
from ops.simulation.placement.plan import OVERLOAD, HistoryPlan, KindPlan


def lines(found: HistoryPlan, request: HistoryRequest, exact: Exact | None) -> Iterator[str]:
    """Yields the lines of a table. exact: the optimum, where it was asked for."""
    yield (
        f"{len(found.works)} models, a history of {found.lasts_s / 3600:,.1f} h: calls of the "
        f"minute that {request.quantile:.4g} of all don't exceed, items on average"
    )
    yield _columns("model", "calls/s", "items/s", "GiB", "work")
    for work, demand in zip(found.works, found.demands, strict=True):
        device_s = _loads(found, demand.model)
        yield _columns(
            demand.model, f"{work.calls_per_s:,.1f}", f"{work.items_per_s:,.1f}",
            f"{demand.memory_gib:.2f}", f"{device_s:.2f}",
        )  # fmt: skip
    for text in found.left_out:
        yield f"left out: {text}"
    yield ""
    yield _columns("device", "replicas", "spot", "per hour", "scaled", "per hour", "refused")
    for kind in found.kinds:
        yield _columns(*_kind(kind))
    for name, models, count in found.plan.pools:
        yield f"  {count} x {name}: {', '.join(models)}"
    yield _price(found, exact)
    yield (
        f"missed: {found.missed:.2%} of the history's calls, {found.missed_overload:.2%} of "
        f"{OVERLOAD:g} times what is planned for"
    )
    yield "formula: devices = rate x time per item / utilisation, of each model"
    yield from _formulas(found, request.utilisation)


def as_json(found: HistoryPlan, request: HistoryRequest, exact: Exact | None) -> dict[str, Any]:
    """Returns the figures for programs."""
    return {
        "lasts_s": found.lasts_s,
        "quantile": request.quantile,
        "utilisation": request.utilisation,
        "models": [
            {
                "model": demand.model,
                "calls_per_s": work.calls_per_s,
                "items_per_s": work.items_per_s,
                "memory_gib": demand.memory_gib,
                "rates_per_s": dict(demand.rates),
            }
            for work, demand in zip(found.works, found.demands, strict=True)
        ],
        "left_out": list(found.left_out),
        "kinds": [
            {
                "device": kind.device.name,
                "replicas": kind.replicas,
                "spot_replicas": kind.device.spot(kind.replicas),
                "price_per_hour": kind.device.price(kind.replicas),
                "scaled_replicas": kind.scaled_replicas,
                "scaled_refused_share": kind.scaled.refused,
            }
            for kind in found.kinds
        ],
        "pools": [
            {"device": kind, "models": list(models), "replicas": count}
            for kind, models, count in found.plan.pools
        ],
        "unplaced_per_s": found.plan.unplaced,
        "price_per_hour": found.price,
        "exact_price_per_hour": exact.price if exact else None,
        "missed_share": found.missed,
        "missed_overload_share": found.missed_overload,
    }


def _kind(kind: KindPlan) -> tuple[str, ...]:
    device, replicas = kind.device, kind.replicas
    price = device.price(replicas) or 0.0
    return (
        device.name, str(replicas), str(device.spot(replicas)), f"{price:,.2f}",
        f"{kind.scaled_replicas:.1f}", f"{price * kind.scaled_replicas / replicas:,.2f}",
        f"{kind.scaled.refused:.2%}",
    )  # fmt: skip


def _price(found: HistoryPlan, exact: Exact | None) -> str:
    text = f"price: {found.price:,.2f} an hour"
    if exact:
        text += f"; {found.plan.price / exact.price:.3f} of the exact optimum's {exact.price:,.2f}"
    if found.plan.unplaced:
        short = ", ".join(f"{its:,.1f}/s of {m}" for m, its in found.plan.unplaced.items())
        text += f"; too few devices for {short}"
    return text


def _formulas(found: HistoryPlan, utilisation: float) -> Iterator[str]:
    for demand in found.demands:
        for name in sorted({its.kind for its in found.plan.devices if demand.model in its.load}):
            rate = demand.rates[name]
            alone = ceil(demand.per_s / rate / utilisation - 1e-9)
            yield (
                f"  {demand.model} on {name}: {demand.per_s:,.1f}/s x {1000 / rate:.4g} ms / "
                f"{utilisation:g} = {demand.per_s / rate / utilisation:.2f}; {alone} alone"
            )


def _loads(found: HistoryPlan, model: str) -> float:
    return sum(device.load.get(model, 0.0) for device in found.plan.devices)


def _columns(*cells: str) -> str:
    return f"{cells[0]:20}" + "".join(f"{cell:>12}" for cell in cells[1:])
