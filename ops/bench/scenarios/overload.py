"""`millrace bench overload`: one worker that is offered three times what it can do."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, save_picture, say, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.plots import TARGET_COLOUR, latencies, shares
from ops.bench.results.report import Report
from ops.bench.results.statistics import goodput_per_s

ASKED = {
    "accepted_p95_ms": "<= 200",
    "refuse_p99_ms": "<= 20",
    "goodput_ratio": ">= 0.95",
}
CAPACITY_PER_S = 320  # launches of 100 ms, 32 calls each
_TARGET_MS = 200
_LOADS = (0.7, 0.8, 0.9, 1.0, 1.1)  # one of them has the peak of what comes in time
_OVERLOAD = 3.0
_WARM_UP_S, _SECONDS = 2.0, 8.0

Runs = Mapping[float, Sequence[Calls]]


def run(effort: Scale = FULL) -> None:
    """All loads in turn, several times."""
    report = Report("overload", ASKED, effort.quick)
    model = sample("batchstring", target_ms=_TARGET_MS, limits={"max_batch": 32})
    runs: dict[float, list[Calls]] = {load: [] for load in (*_LOADS, _OVERLOAD)}
    seconds = _WARM_UP_S + effort.seconds(_SECONDS)
    with own_platform(1, models_file(model)) as platform:
        for seed in range(effort.rounds):
            for load, done in runs.items():
                due_s = poisson(load * CAPACITY_PER_S, seconds, seed)
                done.append(drive(workloads.batchstring(platform, due_s)).since(_WARM_UP_S))
                say(f"{load:g} of the capacity: {_goodput_per_s(done[-1]):.0f}/s in time; "
                    f"{done[-1].said()}")  # fmt: skip
    _goodput(report, runs)
    _latencies(report, runs[_OVERLOAD])
    save_picture("overload", _picture(runs), effort.quick)
    report.finish()


def _goodput_per_s(calls: Calls) -> float:
    return goodput_per_s(calls, _TARGET_MS)


def _goodput(report: Report, runs: Runs) -> None:
    """goodput_ratio: at three times the capacity, over the best load of about the capacity."""
    for load in _LOADS:
        report.add(**{f"goodput_per_s_{load:g}": median(map(_goodput_per_s, runs[load]))})
    peak = max(report.figures[f"goodput_per_s_{load:g}"] for load in _LOADS)
    report.add(**with_spread("goodput_per_s", [_goodput_per_s(calls) for calls in runs[_OVERLOAD]]))
    report.add(goodput_ratio=report.figures["goodput_per_s"] / peak)


def _latencies(report: Report, runs: Sequence[Calls]) -> None:
    """refuse_p99_ms: how long it took to be told to come again; it is missing where nobody was."""
    report.add(**with_spread("accepted_p95_ms", [calls.percentiles(95)[0] for calls in runs]))
    if refused := [calls.latency_ms[calls.refused] for calls in runs if calls.refused.any()]:
        p99s = [float(np.percentile(ms, 99)) for ms in refused]
        report.add(**with_spread("refuse_p99_ms", p99s))
        report.add(refuse_p50_ms=median(float(np.median(ms)) for ms in refused))
    report.add(
        accepted_p50_ms=median(calls.percentiles(50)[0] for calls in runs),
        refused_share=median(float(calls.refused.mean()) for calls in runs),
        failed=sum(int((~calls.right & ~calls.refused).sum()) for calls in runs),
        degraded_share=median(float(calls.degraded.mean()) for calls in runs),
    )


def _picture(runs: Runs) -> Figure:
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    goodput, latency = figure.subplots(1, 2)
    offered = [load * CAPACITY_PER_S for load in sorted(runs)]
    goodput.plot(offered, offered, "--", color="#bdbdbd", label="offered")
    middle = [median(map(_goodput_per_s, runs[load])) for load in sorted(runs)]
    goodput.plot(offered, middle, "o-", color="#08519c", label="answered in time")
    goodput.set_ylim(0, 1.3 * CAPACITY_PER_S)
    goodput.set_xlabel("calls offered a second")
    goodput.set_ylabel("calls a second")
    goodput.set_title("One worker of 320 calls/s")
    goodput.legend()
    shares(latency, latencies(runs[_OVERLOAD]), "answered")
    refused = np.concatenate([calls.latency_ms[calls.refused] for calls in runs[_OVERLOAD]])
    if len(refused):
        shares(latency, refused, "refused")
    latency.axvline(_TARGET_MS, color=TARGET_COLOUR, lw=1, label="target")
    latency.set_xscale("log")
    latency.set_title(f"At {_OVERLOAD:g} times the capacity")
    latency.legend()
    return figure
