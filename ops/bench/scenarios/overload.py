"""`millrace bench overload`: one worker under three times its capacity."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.plots import DARK, distributions, label, latencies, picture
from ops.bench.results.report import Report, scenario
from ops.bench.results.statistics import goodput_per_s
from ops.supervisor.platform import Platform

CAPACITY_PER_S = 320  # launches of 100 ms, 32 calls each
_TARGET_MS = 200
_LOADS = (0.7, 0.8, 0.9, 1.0, 1.1)  # one of them has the peak of goodput
_OVERLOAD = 3.0
_WARM_UP_S, _SECONDS = 2.0, 8.0

Runs = Mapping[float, Sequence[Calls]]


@scenario("overload", "accepted_p95_ms <= 200", "refuse_p99_ms <= 10", "goodput_ratio >= 0.95")
def run(report: Report, scale: Scale) -> Any:
    """Drives all loads in turn, several times."""
    model = sample("batchstring", target_ms=_TARGET_MS, limits={"max_batch": 32})
    with own_platform(1, models_file(model)) as platform:
        loads = (*_LOADS, _OVERLOAD)
        runs = scale.in_turn({load: partial(_drive, platform, scale, load) for load in loads})
    for load in _LOADS:
        report.median(**{f"goodput_per_s_{load:g}": map(_goodput_per_s, runs[load])})
    peak = max(report.figures[f"goodput_per_s_{load:g}"] for load in _LOADS)
    report.spread(goodput_per_s=[_goodput_per_s(calls) for calls in runs[_OVERLOAD]])
    report.add(goodput_ratio=report.figures["goodput_per_s"] / peak)
    _latencies(report, runs[_OVERLOAD])
    return _picture(runs)


def _drive(platform: Platform, scale: Scale, load: float, seed: int) -> Calls:
    due_s = poisson(load * CAPACITY_PER_S, _WARM_UP_S + scale.seconds(_SECONDS), seed)
    calls = drive(workloads.batchstring(platform, due_s)).since(_WARM_UP_S)
    say(f"{load:g} of the capacity: {_goodput_per_s(calls):.0f}/s in time; {calls.statuses()}")
    return calls


def _goodput_per_s(calls: Calls) -> float:
    return goodput_per_s(calls, _TARGET_MS)


def _latencies(report: Report, runs: Sequence[Calls]) -> None:
    """Adds figures of the overload; those of refusals are missing where there was none."""
    report.spread(accepted_p95_ms=[calls.percentiles(95)[0] for calls in runs])
    if refused := [calls.latency_ms[calls.refused] for calls in runs if calls.refused.any()]:
        report.spread(refuse_p99_ms=[float(np.percentile(ms, 99)) for ms in refused])
        report.median(refuse_p50_ms=(float(np.median(ms)) for ms in refused))
    report.median(
        accepted_p50_ms=(calls.percentiles(50)[0] for calls in runs),
        refused_share=(float(calls.refused.mean()) for calls in runs),
        degraded_share=(float(calls.degraded.mean()) for calls in runs),
    )
    report.add(failed=sum(calls.failed for calls in runs))


def _picture(runs: Runs) -> Any:
    figure, (goodput, latency) = picture(2, 9)
    offered = [load * CAPACITY_PER_S for load in runs]
    goodput.plot(offered, offered, "--", color="#bdbdbd", label="offered")
    middle = [median(map(_goodput_per_s, each)) for each in runs.values()]
    goodput.plot(offered, middle, "o-", color=DARK, label="answered in time")
    goodput.set_ylim(0, 1.3 * CAPACITY_PER_S)
    label(goodput, "One worker of 320 calls/s", "calls offered a second", "calls a second", True)
    over = runs[_OVERLOAD]
    refused = np.concatenate([calls.latency_ms[calls.refused] for calls in over])
    sides = {"answered": latencies(over), "refused": refused}
    distributions(latency, sides, f"At {_OVERLOAD:g} times the capacity", target_ms=_TARGET_MS)
    latency.set_xscale("log")
    return figure
