"""`millrace bench calls`: single calls of *batchstring* on six worker processes, and mosec's."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ops.bench.baselines.mosec import WAITS_MS, Mosec, mosec
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
_PERCENTILES = (50, 95, 99)

Runs = Mapping[int, Sequence[Calls]]


@scenario(
    "calls",
    *(f"p95_vs_mosec_{rate} <= 1.0" for rate in RATES),
    "p95_vs_bound <= 1.06",
    "p99_vs_bound <= 1.10",
    "errors <= 0",
    "cpu_ms_per_call <= 0.6",
    "max_rps_p95_200ms >= 1800",
)
def run(report: Report, scale: Scale) -> Any:
    """Drives the sides in turn. mosec is started for each of its runs; ours is idle then."""
    with own_platform(_WORKERS, models_file(sample("batchstring"))) as platform:
        report.add(idle_cores=platform_meter(platform).cores(scale.seconds(_IDLE_S)))
        waits_ms = {rate: _best_wait_ms(rate, scale) for rate in RATES}
        ours, theirs = _rounds(platform, waits_ms, scale)
        most = [
            highest(partial(_holds, platform, scale, seed), _STEPS, _FIRST_STEP)
            for seed in range(scale.rounds)
        ]
    report.add(**{f"mosec_wait_ms_{rate}": wait_ms for rate, wait_ms in waits_ms.items()})
    _compare(report, ours, theirs)
    _costs(report, ours[_BUSIEST], theirs[_BUSIEST])
    report.spread(max_rps_p95_200ms=most)
    return _picture(ours, theirs)


def _rounds(
    platform: Platform, waits_ms: Mapping[int, int], scale: Scale
) -> tuple[dict[int, list[Calls]], dict[int, list[Calls]]]:
    """Returns (ours, mosec's) by rate, including the warm-up."""
    ours: dict[int, list[Calls]] = {rate: [] for rate in RATES}
    theirs: dict[int, list[Calls]] = {rate: [] for rate in RATES}
    meter = platform_meter(platform)
    for seed in range(scale.rounds):
        for rate in RATES:
            due_s = poisson(rate, _WARM_UP_S + _seconds(rate, scale), seed)
            ours[rate].append(drive(workloads.batchstring(platform, due_s), meter))
            _say("millrace", rate, ours[rate][-1])
            with mosec(_WORKERS, _MAX_BATCH, waits_ms[rate]) as peer:
                theirs[rate].append(_drive_mosec(peer, due_s))
            _say(f"mosec, wait {waits_ms[rate]} ms", rate, theirs[rate][-1])
    return ours, theirs


def _seconds(rate: int, scale: Scale) -> float:
    return scale.seconds(max(_MIN_S, _MIN_CALLS / rate))


def _best_wait_ms(rate: int, scale: Scale) -> int:
    """Fixed wait of mosec with the best p95 at this rate, each tried once."""
    due_s = poisson(rate, _WARM_UP_S + _TRIAL_SHARE * _seconds(rate, scale), seed=rate)
    p95_ms: dict[int, float] = {}
    for wait_ms in WAITS_MS:
        with mosec(_WORKERS, _MAX_BATCH, wait_ms) as peer:
            p95_ms[wait_ms] = _percentile(_drive_mosec(peer, due_s), 95)
    found = ", ".join(f"{wait} ms: {p95:.1f}" for wait, p95 in p95_ms.items())
    say(f"mosec at {rate}/s, p95 by wait: {found}")
    return min(p95_ms, key=lambda wait_ms: p95_ms[wait_ms])


def _drive_mosec(peer: Mosec, due_s: Sequence[float]) -> Calls:
    bodies = [f'{{"input": "{text}"}}' for text in workloads.TEXTS]
    outputs = [text.upper() for text in workloads.TEXTS]
    return drive(Load(peer.url, due_s, bodies, outputs), peer.meter)


def _percentile(calls: Calls, which: float) -> float:
    """Percentile after the warm-up, ms."""
    return calls.since(_WARM_UP_S).percentiles(which)[0]


def _say(side: str, rate: int, calls: Calls) -> None:
    cost = f"; {calls.cpu_ms:.2f} ms of CPU a call" if calls.cpu else ""
    say(f"{side} at {rate}/s: {calls.since(_WARM_UP_S)}{cost}")


def _holds(platform: Platform, scale: Scale, seed: int, rate: int) -> bool:
    """Returns True if calls at this rate have no errors and a p95 within the target."""
    due_s = poisson(rate, _WARM_UP_S + scale.seconds(_STEP_S), seed)
    calls = drive(workloads.batchstring(platform, due_s))
    _say("millrace", rate, calls)
    return not calls.errors and _percentile(calls, 95) < _TARGET_MS


def _compare(report: Report, ours: Runs, theirs: Runs) -> None:
    for rate in RATES:
        for prefix, runs in (("", ours[rate]), ("mosec_", theirs[rate])):
            p50s, p95s, p99s = ([_percentile(c, which) for c in runs] for which in _PERCENTILES)
            report.spread(**{f"{prefix}p95_ms_{rate}": p95s})
            report.median(**{f"{prefix}p50_ms_{rate}": p50s, f"{prefix}p99_ms_{rate}": p99s})
        p95 = {prefix: report.figures[f"{prefix}p95_ms_{rate}"] for prefix in ("", "mosec_")}
        report.add(**{f"p95_vs_mosec_{rate}": p95[""] / p95["mosec_"]})
    report.add(
        p95_vs_bound=report.figures[f"p95_ms_{_BUSIEST}"] / BOUND_MS,
        p99_vs_bound=report.figures[f"p99_ms_{_BUSIEST}"] / BOUND_MS,
        errors=sum(calls.errors for runs in ours.values() for calls in runs),
    )


def _costs(report: Report, ours: Sequence[Calls], theirs: Sequence[Calls]) -> None:
    """Adds the CPU of a call at the highest rate, over the whole drive and all processes."""
    report.spread(cpu_ms_per_call=[calls.cpu_ms for calls in ours])
    for part in ours[0].cpu:
        used = (calls.cpu[part] * 1000 / len(calls) for calls in ours)
        report.median(**{f"{part}_cpu_ms_per_call": used})
    report.median(
        mosec_cpu_ms_per_call=(calls.cpu_ms for calls in theirs),
        generator_cpu_ms_per_call=(calls.cpu_s * 1000 / len(calls) for calls in ours),
        generator_late_p99_ms=(float(np.percentile(calls.late_ms, 99)) for calls in ours),
        mosec_generator_late_p99_ms=(float(np.percentile(calls.late_ms, 99)) for calls in theirs),
    )


def _picture(ours: Runs, theirs: Runs) -> Any:
    figure, axes = picture(1, 6, 3.2)
    blues, greys = ("#9ecae1", "#3182bd", "#08306b"), ("#d9d9d9", "#969696", "#252525")
    sides = (("millrace", ours, blues, "-"), ("mosec", theirs, greys, "--"))
    for name, runs, colours, style in sides:
        for which, colour in zip(_PERCENTILES, colours, strict=True):
            points = [median(_percentile(calls, which) for calls in runs[rate]) for rate in RATES]
            axes.plot(
                RATES, points, style, marker="o", ms=3, color=colour, label=f"{name} p{which}"
            )
    axes.axhline(BOUND_MS, color=TARGET_COLOUR, lw=1, label=f"bound of p95, {BOUND_MS} ms")
    axes.set_xscale("log")
    axes.set_xticks(RATES, [str(rate) for rate in RATES])
    axes.minorticks_off()
    axes.set_ylim(bottom=90)
    title = "batchstring, 100 ms a launch, six processes"
    label(axes, title, "calls a second", "ms from the due time")
    axes.legend(ncols=2, fontsize=7)
    return figure
