"""Results of a simulation or a plan, as a table and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.models.model import Model
from ops.simulation.plan import Plan, PlanRequest, bad_share, cheapest
from ops.simulation.rollout import Played
from workers.simulation.result import Result, quantile

_PERCENTILES = (50, 90, 95, 99, 99.9)


def simulation(result: Result, model: Model, rate_per_s: float) -> Iterator[str]:
    """Yields the lines of a table."""
    figures = as_json(result)
    calls, launches = figures["calls"], figures["launches"]
    yield (
        f"{model.key}: {result.replicas} x {model.limits.in_flight} slots, {len(result.calls):,} "
        f"calls in {result.lasted_s:,.0f} s ({rate_per_s:,.1f}/s), target {model.target_ms} ms"
    )
    latency = "  ".join(f"p{name} {ms:.1f}" for name, ms in figures["latency_ms"].items())
    yield f"latency        {latency} ms"
    yield f"missed         {_percent(figures['miss_share'])} of the calls"
    refused = ", ".join(f"{n:,} {why}" for why, n in calls.items() if why != "answered")
    yield f"refused        {_percent(figures['refused_share'])}" + (
        f" ({refused})" if refused else ""
    )
    yield f"calls by       {_said(figures['reasons'])}"
    yield f"launches by    {_said(figures['launch_reasons'])}"
    rows = "  ".join(f"p{name} {n:g}" for name, n in launches["rows"].items())
    yield f"launches       {launches['count']:,}, rows: mean {launches['mean_rows']:.1f}  {rows}"
    busy = "  ".join(f"{s:,.1f}" for s in figures["busy_s"])
    yield f"device time    {_percent(figures['utilisation'])} of the slots'; by replica: {busy} s"
    if figures["items_run"]:
        yield f"job            {figures['items_run']:,.0f} items ({figures['items_per_s']:,.1f}/s)"


def rollout(played: Played, model: Model, replicas: int) -> Iterator[str]:
    """Yields the lines of a table."""
    calls = played.calls
    yield (
        f"rollout of {model.name}: {replicas} x {model.limits.in_flight} slots a version, "
        f"{sum(calls.values()):,} calls in {played.lasted_s:,.0f} s"
    )
    for event in played.events:
        yield (
            f"{event.at_s:>10,.1f} s  {event.percent:>5g} %  {event.act:<10} {event.reason}"
        ).rstrip()
    waits_for = f": {played.reason}" if played.state == "running" else ""
    yield f"{'in the end':<15}{played.state}{waits_for}"
    said = "  ".join(f"{name} {count:,}" for name, count in calls.items())
    yield f"calls          {said}; {played.failed:,} of the canary failed"


def as_json(result: Result) -> dict[str, Any]:
    """Figures for programs."""
    rows = sorted(launch.rows for launch in result.launches)
    return {
        "calls": dict(Counter(call.outcome for call in result.calls)),
        "latency_ms": {f"{p:g}": round(result.p(p) * 1000, 3) for p in _PERCENTILES},
        "miss_share": result.miss_share,
        "refused_share": result.refused_share,
        "reasons": result.reasons,
        "launch_reasons": result.launch_reasons,
        "launches": {
            "count": len(rows),
            "mean_rows": result.rows_per_launch,
            "rows": {f"{p:g}": quantile(rows, p / 100) for p in (5, 50, 95)},
        },
        "busy_s": [round(seconds, 3) for seconds in result.busy_s],
        "utilisation": result.utilisation,
        "items_run": result.items_run,
        "items_per_s": result.items_run / max(result.lasted_s, 1e-9),
        "goodput_per_s": result.goodput_per_s,
        "lost_tickets": result.lost_tickets,
        "lasted_s": result.lasted_s,
    }


def plans(by_device: Sequence[Plan], request: PlanRequest) -> Iterator[str]:
    """Yields the lines of a table."""
    best, rate = cheapest(by_device), by_device[0].rate_per_s
    yield (
        f"{request.model.key}: {len(request.arrivals):,} calls at {rate:,.1f}/s, target "
        f"{request.model.target_ms} ms, at most {_percent(request.bad_share)} missed or refused"
    )
    headings = ("device", "replicas", "formula", "p95 ms", "bad", "busy", "per hour", "per million")
    yield _columns(headings)
    for plan in by_device:
        yield _columns(_plan_row(plan)) + ("  <- cheapest" if plan is best else "")
    yield "formula: replicas = ceil(rate x time per item / batch / utilisation)"
    for plan in by_device:
        capacity = plan.capacity
        slots = f" / {capacity.slots} slots" if capacity.slots > 1 else ""
        yield (
            f"  {plan.device.name}: ceil({rate:,.1f}/s x {capacity.row_s * 1000:.4g} ms{slots} / "
            f"{request.utilisation:g}) = {plan.formula}; a full launch of {capacity.rows:.4g} rows "
            f"takes {capacity.launch_s * 1000:.4g} ms"
            + (
                f"; whole busy devices first: {more}"
                if (more := plan.rounded_first) > plan.formula
                else ""
            )
        )
    yield (
        "utilisation: the share of its capacity that a device is to be used for, so that bursts "
        "find room;"
    )
    yield "the formula knows neither bursts nor the target, the simulation knows both."


def plans_as_json(by_device: Sequence[Plan], request: PlanRequest) -> dict[str, Any]:
    """Figures for programs."""
    best = cheapest(by_device)
    return {
        "model": request.model.key,
        "target_ms": request.model.target_ms,
        "bad_share": request.bad_share,
        "rate_per_s": by_device[0].rate_per_s,
        "utilisation": request.utilisation,
        "cheapest": best.device.name if best else None,
        "devices": [_plan_json(plan) for plan in by_device],
    }


def _plan_json(plan: Plan) -> Mapping[str, Any]:
    result = plan.result
    return {
        "device": plan.device.name,
        "replicas": result.replicas if result else None,
        "formula_replicas": plan.formula,
        "rounded_first_replicas": plan.rounded_first,
        "spot_replicas": plan.device.spot(result.replicas) if result else None,
        "full_launch_ms": plan.capacity.launch_s * 1000,
        "full_rows": plan.capacity.rows,
        "row_ms": plan.capacity.row_s * 1000,
        "price_per_hour": plan.price_per_hour,
        "price_per_million": plan.price_per_million,
        "p95_ms": result.p(95) * 1000 if result else None,
        "miss_share": result.miss_share if result else None,
        "refused_share": result.refused_share if result else None,
        "utilisation": result.utilisation if result else None,
    }


def _plan_row(plan: Plan) -> tuple[str, ...]:
    result, formula = plan.result, str(plan.formula)
    if result is None:
        return plan.device.name, "none", formula, *["-"] * 5
    figures = f"{result.p(95) * 1000:.1f}", _percent(bad_share(result))
    prices = (_price(plan.price_per_hour), _price(plan.price_per_million))
    busy = _percent(result.utilisation)
    return plan.device.name, str(result.replicas), formula, *figures, busy, *prices


def _columns(cells: Sequence[str]) -> str:
    return f"{cells[0]:20}" + "".join(f"{cell:>12}" for cell in cells[1:])


def _price(price: float | None) -> str:
    return "-" if price is None else f"{price:,.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _said(shares: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {_percent(share)}" for name, share in shares.items()) or "-"
