"""`millrace bench lengths`: calls of mixed length: padding, buckets, and the latency model."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from jobs.models.model import Model
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, save_picture, say, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.plots import TARGET_COLOUR, latencies
from ops.bench.results.report import Report
from ops.bench.results.statistics import mean_launch, padding_share, predict_error
from ops.supervisor.platform import Platform

ASKED = {
    "p95_ms": "<= 250",
    "padding_share": "<= 0.25",
    "bucket_gain": ">= 1.3",
    "predict_error": "<= 0.10",
}
_TARGET_MS, _LOAD = 250, 0.7
_PEAK_TARGET_MS, _PEAK_IN_FLIGHT, _PEAK_S = 60_000, 128, 12.0
_WARM_UP_S, _SECONDS = 3.0, 30.0
_MOST_DOTS = 1000  # in the picture


def run(effort: Scale = FULL) -> None:
    """How the engine lays out a launch is compared first, then its calls are driven at a share of
    the peak that was found."""
    report = Report("lengths", ASKED, effort.quick)
    texts = workloads.mixed()
    layouts = _layouts()
    served = [sample("minilm", target_ms=_TARGET_MS), *layouts.values()]
    with own_platform(1, models_file(*served)) as platform:
        peaks = _peaks(platform, list(layouts), texts, effort)
        _gains(report, peaks)
        rate = _LOAD * report.figures["peak_per_s"]
        runs = [_drive(platform, texts, rate, effort, seed) for seed in range(effort.rounds)]
    _latencies(report, runs)
    report.add(padding_share=median(padding_share(calls) for calls in runs))
    if errors := [error for calls in runs if (error := predict_error(calls)) is not None]:
        report.add(**with_spread("predict_error", errors))
    save_picture("lengths", _picture(runs, peaks), effort.quick)
    report.finish()


def _layouts() -> dict[str, Model]:
    """Models that differ in how a launch is laid out, with a target that refuses nothing: `peak`
    as it is served; launches that are padded, with buckets and without."""
    peak = sample("minilm", name="peak", target_ms=_PEAK_TARGET_MS)
    if "bucketing" not in {found.name for found in fields(Model)}:
        say("buckets can't be switched off here: no bucket_gain, no packed_gain")
        return {"peak": peak}
    padded = {"name": "padded", "target_ms": _PEAK_TARGET_MS, "options": {"layout": "padded"}}
    return {
        "peak": peak,
        "padded": sample("minilm", **padded),
        "unbucketed": sample("minilm", **padded | {"name": "unbucketed", "bucketing": False}),
    }


# -- the runs


def _peaks(
    platform: Platform, models: Sequence[str], texts: Sequence[str], effort: Scale
) -> dict[str, list[float]]:
    """Calls a second of each layout, in turn, while many wait."""
    peaks: dict[str, list[float]] = {model: [] for model in models}
    for _ in range(effort.rounds):
        for model, found in peaks.items():
            seconds = effort.seconds(_PEAK_S)
            found.append(
                workloads.peak_per_s(platform, model, texts, _PEAK_IN_FLIGHT, _WARM_UP_S, seconds)
            )
            say(f"{model}: {found[-1]:.1f} calls/s")
    return peaks


def _drive(
    platform: Platform, texts: Sequence[str], rate: float, effort: Scale, seed: int
) -> Calls:
    due_s = poisson(rate, _WARM_UP_S + effort.seconds(_SECONDS), seed)
    calls = drive(workloads.infer(platform, "minilm", texts, due_s)).since(_WARM_UP_S)
    p50, p95 = calls.percentiles(50, 95)
    say(f"at {rate:.1f} calls/s: p50 {p50:.1f}, p95 {p95:.1f} ms; {calls.said()}")
    return calls


# -- the figures


def _gains(report: Report, peaks: Mapping[str, Sequence[float]]) -> None:
    """bucket_gain: padded launches with buckets over the same without; packed_gain: launches as
    they are served over padded ones with buckets."""
    for name, values in peaks.items():
        name = "peak" if name == "peak" else f"{name}_peak"
        report.add(**with_spread(f"{name}_per_s", values))
    if "unbucketed" in peaks:
        figures = report.figures
        report.add(
            bucket_gain=figures["padded_peak_per_s"] / figures["unbucketed_peak_per_s"],
            packed_gain=figures["peak_per_s"] / figures["padded_peak_per_s"],
        )


def _latencies(report: Report, runs: Sequence[Calls]) -> None:
    report.add(**with_spread("p95_ms", [calls.percentiles(95)[0] for calls in runs]))
    report.add(
        p50_ms=median(calls.percentiles(50)[0] for calls in runs),
        p99_ms=median(calls.percentiles(99)[0] for calls in runs),
        miss_share=median(calls.miss_share(_TARGET_MS) for calls in runs),
        refused=sum(int(calls.refused.sum()) for calls in runs),
        failed=sum(int((~calls.right & ~calls.refused).sum()) for calls in runs),
        mean_launch=median(mean_launch(calls) for calls in runs),
    )


def _picture(runs: Sequence[Calls], peaks: Mapping[str, Sequence[float]]) -> Figure:
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    latency, speed = figure.subplots(1, 2)
    units = np.concatenate([calls.units[calls.right] for calls in runs])
    some = slice(None, None, 1 + len(units) // _MOST_DOTS)
    latency.plot(units[some], latencies(runs)[some], ".", ms=2, color="#08519c")
    latency.axhline(_TARGET_MS, color=TARGET_COLOUR, lw=1)
    latency.set_ylim(bottom=0)
    latency.set_xlabel("tokens of the call")
    latency.set_ylabel("ms from the due time")
    latency.set_title(f"Calls of mixed length at {_LOAD:.0%} of the peak")
    for row, values in enumerate(peaks.values()):
        speed.barh(row, median(values), color="#9ecae1")
        speed.plot(values, [row] * len(values), "o", color="#08519c", ms=4)
    names = {"peak": "as served", "padded": "padded, buckets", "unbucketed": "padded, no buckets"}
    speed.set_yticks(range(len(peaks)), [names[name] for name in peaks])
    speed.invert_yaxis()
    speed.set_title("Calls a second at the peak")
    return figure
