"""`millrace bench calls`: single calls of *batchstring* on six worker processes, and mosec's."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ops.bench.baselines.mosec import WAITS_MS, mosec
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Load, drive
from ops.bench.probes.cpu import platform_meter
from ops.bench.results.plots import TARGET_COLOUR, label, picture
from ops.bench.results.report import Report, scenario
from ops.bench.results.statistics import highest
from ops.supervisor.platform import Platform

RATES = (30, 100, 300, 1000)
#: p95 of launches of 100 ms on six processes, evenly spaced: 100 ms, and 95 % of 16.7 ms.
BOUND_MS = 115.8
_BUSIEST = max(RATES)
_WORKERS, _MAX_BATCH, _TARGET_MS = 6, 100, 200
_WARM_UP_S, _MIN_S, _MIN_CALLS, _TRIAL_SHARE = 2.0, 10.0, 600, 0.5
_STEPS = (400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 2700, 3000, 3500, 4000)
_FIRST_STEP, _STEP_S = 1600, 6.0
_IDLE_S = 3.0
#: Prefixes of the figures.
OURS, MOSEC = "", "mosec_"

#: By side and rate: calls of each round, including the warm-up.
Runs = Mapping[tuple[str, int], Sequence[Calls]]


@scenario(
    "calls",
    *(f"p95_vs_mosec_{rate} <= 0.97" for rate in RATES),
    "p95_vs_bound <= 1.05",
    "p99_vs_bound <= 1.08",
    "errors <= 0",
    "cpu_ms_per_call <= 0.35",
    "max_rps_p95_200ms >= 3000",
)
def run(report: Report, scale: Scale) -> Any:
    """Drives the sides in turn. mosec is started for each of its runs; ours is idle then."""
    with own_platform(_WORKERS, models_file(sample("batchstring"))) as platform:
        report.add(idle_cores=platform_meter(platform).cores(scale.seconds(_IDLE_S)))
        sides: dict[tuple[str, int], Callable[[int], Calls]] = {}
        for rate in RATES:
            wait_ms = _best_wait_ms(rate, scale)
            report.add(**{f"mosec_wait_ms_{rate}": wait_ms})
            seconds = _WARM_UP_S + _seconds(rate, scale)
            sides[OURS, rate] = partial(_drive, platform, rate, seconds)
            sides[MOSEC, rate] = partial(_drive_mosec, wait_ms, rate, seconds)
        runs = scale.in_turn(sides)
        most = [
            highest(partial(_holds, platform, scale, seed), _STEPS, _FIRST_STEP)
            for seed in range(scale.rounds)
        ]
    _compare(report, runs)
    _costs(report, runs[OURS, _BUSIEST], runs[MOSEC, _BUSIEST])
    report.spread(max_rps_p95_200ms=most)
    return _picture(runs)


def _seconds(rate: int, scale: Scale) -> float:
    return scale.seconds(max(_MIN_S, _MIN_CALLS / rate))


def _best_wait_ms(rate: int, scale: Scale) -> int:
    """Fixed wait of mosec with the best p95 at this rate, each tried once."""
    seconds = _WARM_UP_S + _TRIAL_SHARE * _seconds(rate, scale)
    p95_ms = {wait: _p95_ms(_drive_mosec(wait, rate, seconds, seed=rate)) for wait in WAITS_MS}
    found = ", ".join(f"{wait} ms: {p95:.1f}" for wait, p95 in p95_ms.items())
    say(f"mosec at {rate}/s, p95 by wait: {found}")
    return min(p95_ms, key=lambda wait_ms: p95_ms[wait_ms])


def _p95_ms(calls: Calls) -> float:
    return calls.since(_WARM_UP_S).percentiles(95)[0]


def _drive(platform: Platform, rate: int, seconds: float, seed: int) -> Calls:
    load = workloads.batchstring(platform, poisson(rate, seconds, seed))
    calls = drive(load, platform_meter(platform))
    _say("millrace", rate, calls)
    return calls


def _drive_mosec(wait_ms: int, rate: int, seconds: float, seed: int) -> Calls:
    bodies = [f'{{"input": "{text}"}}' for text in workloads.TEXTS]
    outputs = [text.upper() for text in workloads.TEXTS]
    with mosec(_WORKERS, _MAX_BATCH, wait_ms) as (url, meter):
        calls = drive(Load(url, poisson(rate, seconds, seed), bodies, outputs), meter)
    _say(f"mosec, wait {wait_ms} ms", rate, calls)
    return calls


def _say(side: str, rate: int, calls: Calls) -> None:
    say(f"{side} at {rate}/s: {calls.since(_WARM_UP_S)}; {calls.cpu_ms:.2f} ms of CPU a call")


def _holds(platform: Platform, scale: Scale, seed: int, rate: int) -> bool:
    """Returns True if calls at this rate have no errors and a p95 within the target."""
    calls = _drive(platform, rate, _WARM_UP_S + scale.seconds(_STEP_S), seed)
    return not calls.errors and _p95_ms(calls) < _TARGET_MS


def _compare(report: Report, runs: Runs) -> None:
    for (side, rate), each in runs.items():
        report.latencies((c.since(_WARM_UP_S) for c in each), f"{side}p{{}}_ms_{rate}")
    figures = report.figures
    for rate in RATES:
        ratio = figures[f"p95_ms_{rate}"] / figures[f"mosec_p95_ms_{rate}"]
        report.add(**{f"p95_vs_mosec_{rate}": ratio})
    report.add(
        p95_vs_bound=figures[f"p95_ms_{_BUSIEST}"] / BOUND_MS,
        p99_vs_bound=figures[f"p99_ms_{_BUSIEST}"] / BOUND_MS,
        errors=sum(calls.errors for rate in RATES for calls in runs[OURS, rate]),
    )


def _costs(report: Report, ours: Sequence[Calls], theirs: Sequence[Calls]) -> None:
    """Adds the CPU of a call at the highest rate, over the whole drive and all processes."""
    report.spread(cpu_ms_per_call=[calls.cpu_ms for calls in ours])
    for part in ours[0].cpu:
        report.median(f"{part}_", cpu_ms_per_call=(calls.cpu_ms_of(part) for calls in ours))
    report.median(
        mosec_cpu_ms_per_call=(calls.cpu_ms for calls in theirs),
        generator_cpu_ms_per_call=(calls.cpu_s * 1000 / len(calls) for calls in ours),
    )
    for side, runs in ((OURS, ours), (MOSEC, theirs)):
        late_ms = (float(np.percentile(calls.late_ms, 99)) for calls in runs)
        report.median(side, generator_late_p99_ms=late_ms)


def _picture(runs: Runs) -> Any:
    figure, axes = picture(1, 6, 3.2)
    blues, greys = ("#9ecae1", "#3182bd", "#08306b"), ("#d9d9d9", "#969696", "#252525")
    for name, side, colours, style in (
        ("millrace", OURS, blues, "-"),
        ("mosec", MOSEC, greys, "--"),
    ):
        for which, colour in zip((50, 95, 99), colours, strict=True):
            points = [
                median(calls.since(_WARM_UP_S).percentiles(which)[0] for calls in runs[side, rate])
                for rate in RATES
            ]
            line = {"marker": "o", "ms": 3, "color": colour, "label": f"{name} p{which}"}
            axes.plot(RATES, points, style, **line)
    axes.axhline(BOUND_MS, color=TARGET_COLOUR, lw=1, label=f"bound of p95, {BOUND_MS} ms")
    axes.set_xscale("log")
    axes.set_xticks(RATES, [str(rate) for rate in RATES])
    axes.minorticks_off()
    axes.set_ylim(bottom=90)
    title = "batchstring, 100 ms a launch, six processes"
    label(axes, title, "calls a second", "ms from the due time")
    axes.legend(ncols=2, fontsize=7)
    return figure
