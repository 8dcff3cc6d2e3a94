"""`millrace bench trace`: the arrivals of a real service, replayed live, beside the simulator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import data_file, own_platform, save_picture, say, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import arrivals, workloads
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.plots import TARGET_COLOUR, latencies, shares
from ops.bench.results.report import Report
from ops.bench.results.statistics import flush_shares, points_apart
from ops.simulation.run import simulate
from ops.supervisor.platform import Platform
from workers.scheduler.entries import FlushReason
from workers.simulation.costs import LaunchTimes

ASKED = {
    "miss_share": "<= 0.01",
    "lost_calls": "<= 0",
    "sim_vs_live_p95": "<= 0.10",
    "flush_reasons_points": "<= 5",
}
TRACES = {
    "busiest": "azure23_conv_busiest300s.csv",
    "whole": "AzureLLMInferenceTrace_conv.csv",
}
_MODEL = sample("batchstring", target_ms=200, limits={"max_batch": 32})
# One replica would answer within 200 ms only what arrives right before a launch leaves.
_REPLICAS, _LAUNCH_S, _LOAD = 2, 0.1, 0.65
RATE_PER_S = _LOAD * _REPLICAS * _MODEL.limits.max_batch / _LAUNCH_S
_WARM_UP_S = 2.0
_COLOURS: Mapping[FlushReason, str] = {
    "pace": "#9ecae1",
    "knee": "#3182bd",
    "full": "#08306b",
    "deadline": "#fdae6b",
    "drain": "#969696",
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the simulator says of a trace: p95, ms, and the share of launches by flush reason."""

    p95_ms: float
    reasons: Mapping[str, float]


def run(effort: Scale = FULL) -> None:
    """Each trace, compressed to a share of what the replicas can do, in turn."""
    report = Report("trace", ASKED, effort.quick)
    traces = {
        name: arrivals.compressed(arrivals.trace(data_file(file)), RATE_PER_S)
        for name, file in TRACES.items()
        if name == "busiest" or not effort.quick
    }
    runs: dict[str, list[Calls]] = {name: [] for name in traces}
    with own_platform(_REPLICAS, models_file(_MODEL)) as platform:
        for seed in range(effort.rounds):
            for name, times in traces.items():
                runs[name].append(_replay(platform, name, times, seed))
    _misses(report, runs)
    _compare_with_the_simulator(report, traces, runs)
    save_picture("trace", _picture(traces, runs), effort.quick)
    report.finish()


def _replay(platform: Platform, name: str, times: Sequence[float], seed: int) -> Calls:
    warm_up = arrivals.poisson(RATE_PER_S, _WARM_UP_S, seed)
    due_s = arrivals.after(warm_up, _WARM_UP_S, times)
    calls = drive(workloads.batchstring(platform, due_s)).since(_WARM_UP_S)
    p50, p95, p99 = calls.percentiles(50, 95, 99)
    say(f"{name}: p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms; {calls.said()}")
    return calls


def _misses(report: Report, runs: Mapping[str, Sequence[Calls]]) -> None:
    """miss_share: of the trace that has more of them."""
    for name, done in runs.items():
        p50s, p95s, p99s = zip(*(calls.percentiles(50, 95, 99) for calls in done), strict=True)
        report.add(**{f"{name}_p50_ms": median(p50s), f"{name}_p99_ms": median(p99s)})
        report.add(**with_spread(f"{name}_p95_ms", p95s))
        misses = [calls.miss_share(_MODEL.target_ms) for calls in done]
        report.add(**{f"{name}_miss_share": median(misses)})
    everything = [calls for done in runs.values() for calls in done]
    report.add(
        rate_per_s=RATE_PER_S,
        miss_share=max(report.figures[f"{name}_miss_share"] for name in runs),
        lost_calls=sum(int((calls.status == 0).sum()) for calls in everything),
        refused=sum(int(calls.refused.sum()) for calls in everything),
    )


# -- beside the simulator


def _compare_with_the_simulator(
    report: Report, traces: Mapping[str, Sequence[float]], runs: Mapping[str, Sequence[Calls]]
) -> None:
    """Of the trace where they differ more."""
    differ: list[float] = []
    points: list[float] = []
    for name, times in traces.items():
        simulated = _simulate(times, runs[name])
        live = median(calls.percentiles(95)[0] for calls in runs[name])
        differ.append(abs(simulated.p95_ms / live - 1))
        points.append(points_apart(simulated.reasons, _mean_reasons(runs[name])))
        report.add(**{f"{name}_sim_p95_ms": simulated.p95_ms})
    report.add(sim_vs_live_p95=max(differ), flush_reasons_points=max(points))


def _simulate(times: Sequence[float], runs: Sequence[Calls]) -> Simulated:
    """What the simulator makes of these arrivals, with the same model and replicas, and launches
    that take what they took live."""
    took_s = np.concatenate([np.unique(calls.engine_ms[calls.right]) for calls in runs]) / 1000
    middle_s = float(np.median(took_s))
    launches = LaunchTimes(middle_s, ratios=tuple(float(s) / middle_s for s in took_s))
    arrivals = [
        (time, len(text)) for time, text in zip(times, cycle(workloads.TEXTS), strict=False)
    ]
    result = simulate(_MODEL, _REPLICAS, arrivals, launches)
    return Simulated(result.p(95) * 1000, result.launch_reasons)


def _mean_reasons(runs: Sequence[Calls]) -> dict[str, float]:
    found = [flush_shares(calls) for calls in runs]
    names = {name for shares in found for name in shares}
    return {name: sum(shares.get(name, 0) for shares in found) / len(found) for name in names}


def _picture(traces: Mapping[str, Sequence[float]], runs: Mapping[str, Sequence[Calls]]) -> Figure:
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    load, latency, why = figure.subplots(1, 3)
    for name, times in traces.items():
        counts, edges = np.histogram(times, bins=60)
        per_s = counts / np.diff(edges)
        load.step(np.linspace(0, 1, len(per_s)), per_s, where="mid", label=name)
        shares(latency, latencies(runs[name]), name)
    load.axhline(RATE_PER_S / _LOAD, color=TARGET_COLOUR, lw=1, label="capacity")
    load.set_ylim(bottom=0)
    load.set_xlabel("share of the trace")
    load.set_title("Calls a second")
    load.legend()
    latency.axvline(_MODEL.target_ms, color=TARGET_COLOUR, lw=1)
    latency.set_title("Latency, and the target")
    found = [_mean_reasons(done) for done in runs.values()]
    left = np.zeros(len(runs))
    for reason, colour in _COLOURS.items():
        width = np.array([mean.get(reason, 0.0) for mean in found])
        why.barh(list(runs), width, left=left, color=colour, label=reason)
        left += width
    why.set_title("Launches by flush reason")
    why.legend(loc="lower left")
    return figure
