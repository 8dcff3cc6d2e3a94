"""`millrace bench trace`: arrivals of a service, replayed live and in the simulator."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from ops.bench.data import traces
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import arrivals, workloads
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.plots import TARGET_COLOUR, distributions, label, latencies, picture
from ops.bench.results.report import Report, scenario
from ops.bench.results.statistics import flush_shares, points_apart
from ops.simulation.run import simulate
from ops.supervisor.platform import Platform
from workers.scheduler.entries import FlushReason
from workers.simulation.costs import LaunchTimes

_TRACES = {"busiest": traces.busiest, "whole": traces.hour}
_MODEL = sample("batchstring", target_ms=200, limits={"max_batch": 32})
# One replica would answer within 200 ms only calls that arrive right before a launch leaves.
_REPLICAS, _LAUNCH_S, _LOAD = 2, 0.1, 0.65
RATE_PER_S = _LOAD * _REPLICAS * _MODEL.limits.most_rows / _LAUNCH_S
_WARM_UP_S = 2.0
_COLOURS: Mapping[FlushReason, str] = {
    "pace": "#9ecae1",
    "knee": "#3182bd",
    "full": "#08306b",
    "deadline": "#fdae6b",
    "drain": "#969696",
}

#: Arrivals, and the calls of each round, by trace.
Times = Mapping[str, Sequence[float]]
Runs = Mapping[str, Sequence[Calls]]


@scenario(
    "trace",
    "miss_share <= 0.01",
    "lost_calls <= 0",
    "sim_vs_live_p95 <= 0.10",
    "flush_reasons_points <= 5",
)
def run(report: Report, scale: Scale) -> Any:
    """Replays each trace, compressed to a share of the replicas' capacity, in turn."""
    replayed = {
        name: arrivals.compressed([at_s for at_s, _ in read()], RATE_PER_S)
        for name, read in _TRACES.items()
        if name == "busiest" or not scale.quick
    }
    with own_platform(_REPLICAS, models_file(_MODEL)) as platform:
        runs = scale.in_turn(
            {name: partial(_replay, platform, name, times) for name, times in replayed.items()}
        )
    _misses(report, runs)
    _compare_with_the_simulator(report, replayed, runs)
    return _picture(replayed, runs)


def _replay(platform: Platform, name: str, times: Sequence[float], seed: int) -> Calls:
    warm_up = arrivals.poisson(RATE_PER_S, _WARM_UP_S, seed)
    due_s = arrivals.after(warm_up, _WARM_UP_S, times)
    calls = drive(workloads.batchstring(platform, due_s)).since(_WARM_UP_S)
    say(f"{name}: {calls}")
    return calls


def _misses(report: Report, runs: Runs) -> None:
    """Adds latencies and misses; miss_share is that of the trace that has more of them."""
    for name, done in runs.items():
        report.latencies(done, f"{name}_p{{}}_ms")
        report.median(f"{name}_", miss_share=(c.miss_share(_MODEL.target_ms) for c in done))
    everything = [calls for done in runs.values() for calls in done]
    report.add(
        rate_per_s=RATE_PER_S,
        miss_share=max(report.figures[f"{name}_miss_share"] for name in runs),
        lost_calls=sum(int((calls.status == 0).sum()) for calls in everything),
        refused=sum(int(calls.refused.sum()) for calls in everything),
    )


def _compare_with_the_simulator(report: Report, replayed: Times, runs: Runs) -> None:
    """Adds differences, those of the trace where they are larger."""
    differ: list[float] = []
    points: list[float] = []
    for name, times in replayed.items():
        p95_ms, reasons = _simulate(times, runs[name])
        differ.append(abs(p95_ms / report.figures[f"{name}_p95_ms"] - 1))
        points.append(points_apart(reasons, _mean_reasons(runs[name])))
        report.add(f"{name}_", sim_p95_ms=p95_ms)
    report.add(sim_vs_live_p95=max(differ), flush_reasons_points=max(points))


def _simulate(times: Sequence[float], runs: Sequence[Calls]) -> tuple[float, Mapping[str, float]]:
    """Simulates arrivals, with launches that take as long as they took live.

    Returns (p95 in ms, share of launches by flush reason).
    """
    took_s = np.concatenate([np.unique(calls.engine_ms[calls.right]) for calls in runs]) / 1000
    middle_s = float(np.median(took_s))
    launches = LaunchTimes(middle_s, ratios=tuple(float(s) / middle_s for s in took_s))
    sizes = [(time, len(text)) for time, text in zip(times, cycle(workloads.TEXTS), strict=False)]
    result = simulate(_MODEL, _REPLICAS, sizes, launches)
    return result.p(95) * 1000, result.launch_reasons


def _mean_reasons(runs: Sequence[Calls]) -> dict[str, float]:
    found = [flush_shares(calls) for calls in runs]
    names = {name for each in found for name in each}
    return {name: sum(each.get(name, 0) for each in found) / len(found) for name in names}


def _picture(replayed: Times, runs: Runs) -> Any:
    figure, (load, latency, reasons) = picture(3, 10)
    for name, times in replayed.items():
        counts, edges = np.histogram(times, bins=60)
        per_s = counts / np.diff(edges)
        load.step(np.linspace(0, 1, len(per_s)), per_s, where="mid", label=name)
    load.axhline(RATE_PER_S / _LOAD, color=TARGET_COLOUR, lw=1, label="capacity")
    load.set_ylim(bottom=0)
    label(load, "Calls a second", "share of the trace", legend=True)
    samples = {name: latencies(done) for name, done in runs.items()}
    distributions(latency, samples, "Latency, and the target", target_ms=_MODEL.target_ms)
    found = [_mean_reasons(done) for done in runs.values()]
    left = np.zeros(len(runs))
    for reason, colour in _COLOURS.items():
        width = np.array([mean.get(reason, 0.0) for mean in found])
        reasons.barh(list(runs), width, left=left, color=colour, label=reason)
        left += width
    label(reasons, "Launches by flush reason", legend=True)
    return figure
