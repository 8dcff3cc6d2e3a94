"""`millrace bench fairness`: small tenants next to one that floods, and shares of the devices."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ops.bench.fairness import backlogs, flood, lanes
from ops.bench.fairness.backlogs import EQUAL, FIRST, WEIGHED, Window
from ops.bench.fairness.flood import FLOOD, NINE, Flood, Side
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import drive
from ops.bench.load.submissions import await_end
from ops.bench.load.tenants import Tenants, tenants_of
from ops.bench.probes.cpu import platform_meter
from ops.bench.results.plots import DARK, LIGHT, distributions, label, latencies, picture
from ops.bench.results.report import Report, scenario
from ops.bench.results.statistics import jain, share_error
from ops.supervisor.platform import Platform

_WORKERS = 6
_FLOOD = Flood(calls_per_s=500, jobs=2)
_SINGLE, _TEN = ["single"], [f"ten-{n}" for n in range(1, 11)]
_JOB_ITEMS = (7_500, 3_000, 1_200, 300)  # ten jobs of each: little is left at the end
_LIMITED = "limited"
_LIMITS = {"requests_per_s": 1e6, "tokens_per_s": 1e9, "calls_in_flight": 1_000_000}
_PER_S, _WARM_UP_S, _SECONDS = 300, 1.0, 9.0  # of the calls that cost is measured with

#: (alone, with the flood) of each round.
Sides = Sequence[tuple[Side, Side]]


@scenario(
    "fairness",
    "light_job_ratio <= 1.5",
    "light_call_ratio <= 1.2",
    "fair_lanes_ratio <= 1.2",
    "jain >= 0.98",
    "share_error <= 0.05",
    "throughput_ratio >= 0.97",
    "auth_cpu_ms <= 0.1",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures the parts one after the other; within each, its sides in turn."""
    names = [FLOOD, *NINE, FIRST, *EQUAL, *WEIGHED, *_SINGLE, *_TEN]
    models, rounds = models_file(sample("batchstring")), range(scale.rounds)
    with own_platform(_WORKERS, models) as platform, tenants_of(platform, names) as tenants:
        measure = partial(flood.measure, platform, tenants, scale)
        sides = [(measure(seed), measure(seed, _FLOOD)) for seed in rounds]
        _beside_a_flood(report, sides)
        equal = [backlogs.measure(tenants, EQUAL, scale, backlogs.EQUAL_S) for _ in rounds]
        weighed = backlogs.measure(tenants, WEIGHED, scale, backlogs.WEIGHED_S)
        _shares(report, equal, weighed)
        rates = [[_items_per_s(tenants, who, scale) for who in (_SINGLE, _TEN)] for _ in rounds]
    single, ten = zip(*rates, strict=True)
    report.spread(items_per_s_single=single, items_per_s_ten=ten)
    report.add(throughput_ratio=median(ten) / median(single))
    _cpu(report, models, scale)
    _fair_lanes(report, lanes.measure(scale))
    return _picture(sides, equal, weighed)


def _beside_a_flood(report: Report, sides: Sides) -> None:
    """Adds figures of jobs and calls; their ratios are those of the medians of the rounds' p95."""
    for n, side in enumerate(("_alone", "")):
        for kind, found in (
            ("job", [np.percentile(pair[n].job_ms, [50, 95]) for pair in sides]),
            ("call", [pair[n].calls.percentiles(50, 95) for pair in sides]),
        ):
            p50s, p95s = ([float(ms) for ms in column] for column in zip(*found, strict=True))
            report.median(f"light_{kind}_", **{f"p50{side}_ms": p50s})
            report.spread(f"light_{kind}_", **{f"p95{side}_ms": p95s})
        submits = (pair[n].submits.percentiles(95)[0] for pair in sides)
        report.median(**{f"light_submit_p95{side}_ms": submits})
    for kind in ("job", "call"):
        p95, alone = (report.figures[f"light_{kind}_p95{side}_ms"] for side in ("", "_alone"))
        report.add(**{f"light_{kind}_ratio": p95 / alone})
    report.add(light_call_errors=sum(side.calls.errors for pair in sides for side in pair))


def _shares(report: Report, equal: Sequence[Window], weighed: Window) -> None:
    found = [jain(list(window.device_s.values())) for window in equal]
    if indices := [index for index in found if index is not None]:
        report.spread(jain=indices)
    if (error := share_error(weighed.device_s, WEIGHED)) is not None:
        report.add(share_error=error)
    report.median(jain_window_s=(window.seconds for window in equal))
    report.add(share_window_s=weighed.seconds)


def _fair_lanes(report: Report, sides: lanes.Sides) -> None:
    """Adds figures of a tenant's short texts; fair_lanes_ratio is that of the medians of the
    rounds' p95, beside another's bursts of long texts over alone."""
    for n, side in enumerate(("_alone", "")):
        p95s = [pair[n].percentiles(95)[0] for pair in sides]
        report.spread("fair_lanes_", **{f"p95{side}_ms": p95s})
    figures = report.figures
    ratio = figures["fair_lanes_p95_ms"] / figures["fair_lanes_p95_alone_ms"]
    errors = sum(calls.errors for pair in sides for calls in pair)
    report.add(fair_lanes_ratio=ratio, fair_lanes_errors=errors)


def _items_per_s(tenants: Tenants, names: Sequence[str], scale: Scale) -> float:
    """Items a second of the same jobs, posted by these tenants in turn."""
    sizes = [int(scale.seconds(items)) for items in _JOB_ITEMS]
    posters = list(names) * (len(_TEN) // len(names))
    since, clients = tenants.now(), [tenants.client(name) for name in posters]
    for items in sizes:
        for client in clients:
            client.post("batchstring", (f"item {n}" for n in range(items)))
    for client in clients:
        client.close()
    total = sum(sizes) * len(posters)
    await_end(tenants.database, names)
    per_s = total / tenants.span_s(names, since, total)
    say(f"{len(names)} tenants: {per_s:.0f} items/s")
    return per_s


def _cpu(report: Report, models: str, scale: Scale) -> None:
    """Adds the CPU of calls without a key, and with one and limits of every kind, in turn.

    Two platforms, since one that has a key requires it. auth_cpu_ms: of the api's process, which
    does all of it but what Redis runs.
    """
    with (
        own_platform(models=models) as without,
        own_platform(models=models) as limited,
        tenants_of(limited, [_LIMITED]) as tenants,
    ):
        tenants.limit(_LIMITED, _LIMITS, model="batchstring")
        tenants.limit(_LIMITED, _LIMITS, key=tenants.key_ids[_LIMITED])
        key = tenants.keys[_LIMITED]
        costs = [
            (_cost(without, (), scale, seed), _cost(limited, [key], scale, seed))
            for seed in range(scale.rounds)
        ]
    added = [after["api"] - before["api"] for before, after in costs]
    report.median(
        api_cpu_ms_without=(before["api"] for before, _ in costs),
        api_cpu_ms_with=(after["api"] for _, after in costs),
        auth_cpu_ms=added,
        auth_redis_cpu_ms=(after["redis"] - before["redis"] for before, after in costs),
    )
    report.add(auth_cpu_ms_most=max(added))


def _cost(platform: Platform, keys: Sequence[str], scale: Scale, seed: int) -> dict[str, float]:
    """CPU of a call by part of the platform, ms."""
    drive(workloads.batchstring(platform, poisson(_PER_S, _WARM_UP_S, seed), keys))
    due_s = poisson(_PER_S, scale.seconds(_SECONDS), seed)
    load = workloads.batchstring(platform, due_s, keys)
    calls = drive(load, platform_meter(platform)).all_right()
    cost = {part: calls.cpu_ms_of(part) for part in calls.cpu}
    shown = ", ".join(f"{part} {ms:.3f}" for part, ms in cost.items())
    say(f"{'with a key and limits' if keys else 'without'}: ms of CPU a call: {shown}")
    return cost


def _picture(sides: Sides, equal: Sequence[Window], weighed: Window) -> Any:
    figure, (jobs, calls, bars) = picture(3, 10)
    names = dict(enumerate(("alone", "beside a flood")))
    job_ms = {name: np.concatenate([pair[n].job_ms for pair in sides]) for n, name in names.items()}
    title = "Jobs of 20 items, of nine tenants"
    distributions(jobs, job_ms, title, "ms from creation to end", "share of jobs")
    call_ms = {name: latencies(pair[n].calls for pair in sides) for n, name in names.items()}
    distributions(calls, call_ms, "Their calls")
    _bars(bars, equal, EQUAL, 0)
    _bars(bars, [weighed], WEIGHED, len(EQUAL) + 1)
    rows = [*range(len(EQUAL)), *range(len(EQUAL) + 1, len(EQUAL) + 1 + len(WEIGHED))]
    bars.set_yticks(rows, [f"{weight:g}" for weight in (*EQUAL.values(), *WEIGHED.values())])
    label(bars, "Device time, of what is due", y="weight")
    return figure


def _bars(axes: Any, windows: Sequence[Window], weights: Mapping[str, float], first: int) -> None:
    """Plots each tenant's share of what it is due: a bar for the median, a dot a window."""
    whole = sum(weights.values())
    for row, (name, weight) in enumerate(weights.items(), start=first):
        due = [weight / whole * sum(window.device_s.values()) for window in windows]
        got = [w.device_s[name] / d for w, d in zip(windows, due, strict=True) if d]
        if got:
            axes.barh(row, median(got), color=LIGHT)
            axes.plot(got, [row] * len(got), "o", color=DARK, ms=3)
    axes.axvline(1, color="#bdbdbd")
