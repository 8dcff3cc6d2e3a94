"""`millrace bench calls`: single calls of *batchstring* on six worker processes, beside mosec."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from jobs import clock
from ops.bench.baselines.mosec import WAITS_MS, Mosec, mosec
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, save_picture, say, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Load, drive
from ops.bench.probes import cpu
from ops.bench.results.plots import TARGET_COLOUR
from ops.bench.results.report import Report
from ops.bench.results.statistics import highest
from ops.supervisor.platform import Platform

RATES = (30, 100, 300, 1000)
BOUND_MS = 115.8
"""p95 of launches of 100 ms on six processes, evenly spaced: 100 ms, and 95 % of 16.7 ms."""
BUSIEST = max(RATES)

ASKED = {
    **{f"p95_vs_mosec_{rate}": "<= 1.0" for rate in RATES},
    "p95_vs_bound": "<= 1.06",
    "p99_vs_bound": "<= 1.10",
    "errors": "<= 0",
    "cpu_ms_per_call": "<= 0.6",
    "max_rps_p95_200ms": ">= 1800",
}
_WORKERS, _MAX_BATCH, _TARGET_MS = 6, 100, 200
_WARM_UP_S, _LEAST_S, _LEAST_CALLS, _TRIAL_SHARE = 2.0, 10.0, 600, 0.5
_STEPS = (400, 600, 800, 1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400, 2700, 3000, 3500, 4000)
_FIRST_STEP, _STEP_S = 1600, 6.0
_IDLE_S = 3.0

Runs = Mapping[int, Sequence[Calls]]


def run(effort: Scale = FULL) -> None:
    """The sides are driven in turn. mosec is started for each of its runs; ours is idle then."""
    report = Report("calls", ASKED, effort.quick)
    with own_platform(_WORKERS, models_file(sample("batchstring"))) as platform:
        _idle(report, platform, effort)
        waits_ms = {rate: _best_wait_ms(rate, effort) for rate in RATES}
        ours, theirs = _rounds(platform, waits_ms, effort)
        most = [_most_per_s(platform, effort, seed) for seed in range(effort.rounds)]
    report.add(**{f"mosec_wait_ms_{rate}": wait_ms for rate, wait_ms in waits_ms.items()})
    _compare(report, ours, theirs)
    _against_the_bound(report, ours)
    _costs(report, ours[BUSIEST], theirs[BUSIEST])
    report.add(**with_spread("max_rps_p95_200ms", most))
    save_picture("calls", _picture(ours, theirs), effort.quick)
    report.finish()


# -- the runs


def _rounds(
    platform: Platform, waits_ms: Mapping[int, int], effort: Scale
) -> tuple[dict[int, list[Calls]], dict[int, list[Calls]]]:
    """(ours, mosec's) by rate, the warm-up included."""
    ours: dict[int, list[Calls]] = {rate: [] for rate in RATES}
    theirs: dict[int, list[Calls]] = {rate: [] for rate in RATES}
    meter = cpu.of_platform(platform)
    for seed in range(effort.rounds):
        for rate in RATES:
            due_s = poisson(rate, _WARM_UP_S + _seconds(rate, effort), seed)
            ours[rate].append(drive(workloads.batchstring(platform, due_s), meter))
            _tell("millrace", rate, ours[rate][-1])
            with mosec(_WORKERS, _MAX_BATCH, waits_ms[rate]) as peer:
                theirs[rate].append(_drive_mosec(peer, due_s))
            _tell(f"mosec, wait {waits_ms[rate]} ms", rate, theirs[rate][-1])
    return ours, theirs


def _seconds(rate: int, effort: Scale) -> float:
    return effort.seconds(max(_LEAST_S, _LEAST_CALLS / rate))


def _best_wait_ms(rate: int, effort: Scale) -> int:
    """mosec's fixed wait with the best p95 at this rate, each tried once."""
    due_s = poisson(rate, _WARM_UP_S + _TRIAL_SHARE * _seconds(rate, effort), seed=rate)

    def p95_ms(wait_ms: int) -> float:
        with mosec(_WORKERS, _MAX_BATCH, wait_ms) as peer:
            return _measured(_drive_mosec(peer, due_s)).percentiles(95)[0]

    tried = {wait_ms: p95_ms(wait_ms) for wait_ms in WAITS_MS}
    found = ", ".join(f"{wait} ms: {p95:.1f}" for wait, p95 in tried.items())
    say(f"mosec at {rate}/s, p95 by wait: {found}")
    return min(tried, key=lambda wait_ms: tried[wait_ms])


def _drive_mosec(peer: Mosec, due_s: Sequence[float]) -> Calls:
    bodies = [f'{{"input": "{text}"}}' for text in workloads.TEXTS]
    outputs = [text.upper() for text in workloads.TEXTS]
    return drive(Load(peer.url, due_s, bodies, outputs), peer.meter)


def _measured(calls: Calls) -> Calls:
    return calls.since(_WARM_UP_S)


def _tell(side: str, rate: int, calls: Calls) -> None:
    p50, p95, p99 = _measured(calls).percentiles(50, 95, 99)
    cost = f"; {_cpu_ms(calls):.2f} ms of CPU a call" if calls.cpu else ""
    wrong = f"; {calls.errors} ERRORS: {calls.said()}" if calls.errors else ""
    say(f"{side} at {rate}/s: p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms{cost}{wrong}")


def _idle(report: Report, platform: Platform, effort: Scale) -> None:
    """Cores that our side takes while mosec is driven."""
    meter, seconds = cpu.of_platform(platform), effort.seconds(_IDLE_S)
    before = sum(meter.read().values())
    clock.sleep(seconds)
    report.add(idle_cores=(sum(meter.read().values()) - before) / seconds)


# -- how many a second


def _most_per_s(platform: Platform, effort: Scale, seed: int) -> int:
    def holds(rate: int) -> bool:
        due_s = poisson(rate, _WARM_UP_S + effort.seconds(_STEP_S), seed)
        calls = drive(workloads.batchstring(platform, due_s))
        _tell("millrace", rate, calls)
        return not calls.errors and _measured(calls).percentiles(95)[0] < _TARGET_MS

    return highest(holds, _STEPS, _FIRST_STEP)


# -- the figures


def _compare(report: Report, ours: Runs, theirs: Runs) -> None:
    for rate in RATES:
        middles = []
        for prefix, runs in (("", ours[rate]), ("mosec_", theirs[rate])):
            p50s, p95s, p99s = zip(
                *(_measured(c).percentiles(50, 95, 99) for c in runs), strict=True
            )
            report.add(**{f"{prefix}p50_ms_{rate}": median(p50s)})
            report.add(**with_spread(f"{prefix}p95_ms_{rate}", p95s))
            report.add(**{f"{prefix}p99_ms_{rate}": median(p99s)})
            middles.append(median(p95s))
        report.add(**{f"p95_vs_mosec_{rate}": middles[0] / middles[1]})


def _against_the_bound(report: Report, ours: Runs) -> None:
    p95 = report.figures[f"p95_ms_{BUSIEST}"]
    p99 = report.figures[f"p99_ms_{BUSIEST}"]
    everything = [calls for runs in ours.values() for calls in runs]
    report.add(
        p95_vs_bound=p95 / BOUND_MS,
        p99_vs_bound=p99 / BOUND_MS,
        errors=sum(calls.errors for calls in everything),
    )


def _costs(report: Report, ours: Sequence[Calls], theirs: Sequence[Calls]) -> None:
    """CPU of a call at the highest rate, over the whole drive and all processes of a side."""
    report.add(**with_spread("cpu_ms_per_call", [_cpu_ms(calls) for calls in ours]))
    for part in ours[0].cpu:
        used = [calls.cpu[part] * 1000 / len(calls) for calls in ours]
        report.add(**{f"{part}_cpu_ms_per_call": median(used)})
    report.add(
        mosec_cpu_ms_per_call=median(_cpu_ms(calls) for calls in theirs),
        generator_cpu_ms_per_call=median(calls.cpu_s * 1000 / len(calls) for calls in ours),
        generator_late_p99_ms=median(_late_ms(calls) for calls in ours),
        mosec_generator_late_p99_ms=median(_late_ms(calls) for calls in theirs),
    )


def _cpu_ms(calls: Calls) -> float:
    return sum(calls.cpu.values()) * 1000 / len(calls)


def _late_ms(calls: Calls) -> float:
    return float(np.percentile(calls.late_ms, 99))


def _picture(ours: Runs, theirs: Runs) -> Figure:
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    blues, greys = ("#9ecae1", "#3182bd", "#08306b"), ("#d9d9d9", "#969696", "#252525")
    for name, runs, colours, style in (
        ("millrace", ours, blues, "-"),
        ("mosec", theirs, greys, "--"),
    ):
        for which, colour in zip((50, 95, 99), colours, strict=True):
            points = [
                median(_measured(calls).percentiles(which)[0] for calls in runs[rate])
                for rate in RATES
            ]
            axes.plot(
                RATES, points, style, marker="o", ms=3, color=colour, label=f"{name} p{which}"
            )
    axes.axhline(BOUND_MS, color=TARGET_COLOUR, lw=1, label=f"bound of p95, {BOUND_MS} ms")
    axes.set_xscale("log")
    axes.set_xticks(RATES, [str(rate) for rate in RATES])
    axes.minorticks_off()
    axes.set_ylim(bottom=90)
    axes.set_xlabel("calls a second")
    axes.set_ylabel("ms from the due time")
    axes.set_title("batchstring, 100 ms a launch, six processes")
    axes.legend(ncols=2, fontsize=7)
    return figure
