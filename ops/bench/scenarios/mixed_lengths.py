"""`millrace bench lengths`: calls of mixed length: padding, buckets, and the latency model."""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import numpy as np

from ops.bench.data import texts as data
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.plots import DARK, TARGET_COLOUR, bars, label, latencies, picture
from ops.bench.results.report import Report, scenario
from ops.bench.results.statistics import mean_launch, padding_share, predict_error
from ops.supervisor.platform import Platform

_TARGET_MS, _LOAD = 250, 0.7
_PEAK_S = 12.0
_WARM_UP_S, _SECONDS = 3.0, 30.0
_MAX_DOTS = 1000  # in the picture

_PADDED = {"target_ms": workloads.PEAK_TARGET_MS, "options": {"layout": "padded"}}
#: Models that differ in the layout of a launch, with a target that refuses nothing: as served, and
#: padded with buckets and without.
_LAYOUTS = {
    "peak": sample("minilm", name="peak", target_ms=workloads.PEAK_TARGET_MS),
    "padded": sample("minilm", name="padded", **_PADDED),
    "unbucketed": sample("minilm", name="unbucketed", bucketing=False, **_PADDED),
}


@scenario(
    "lengths",
    "p95_ms <= 250",
    "padding_share <= 0.25",
    "bucket_gain >= 1.3",
    "predict_error <= 0.10",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures the peak of each layout, then drives calls at a share of the one that is served."""
    texts = data.mixed()
    Random(1).shuffle(texts)
    served = [sample("minilm", target_ms=_TARGET_MS), *_LAYOUTS.values()]
    with own_platform(1, models_file(*served)) as platform:
        sides = {model: partial(_peak_per_s, platform, model, texts, scale) for model in _LAYOUTS}
        peaks = scale.in_turn(sides)
        _gains(report, peaks)
        rate = _LOAD * report.figures["peak_per_s"]
        runs = [_drive(platform, texts, rate, scale, seed) for seed in range(scale.rounds)]
    report.latencies(runs)
    report.median(
        padding_share=map(padding_share, runs),
        miss_share=(calls.miss_share(_TARGET_MS) for calls in runs),
        mean_launch=map(mean_launch, runs),
    )
    report.add(
        refused=sum(int(calls.refused.sum()) for calls in runs),
        failed=sum(calls.failed for calls in runs),
    )
    if errors := [error for calls in runs if (error := predict_error(calls)) is not None]:
        report.spread(predict_error=errors)
    return _picture(runs, peaks)


def _peak_per_s(
    platform: Platform, model: str, texts: Sequence[str], scale: Scale, _: int
) -> float:
    """Returns the calls a second of a layout while many wait. Raises BenchError where no call was
    answered."""
    seconds = scale.seconds(_PEAK_S)
    per_s = workloads.peak_per_s(platform, model, texts, _WARM_UP_S, seconds)
    if not per_s:
        raise BenchError(f"{model} answered no call in {seconds:g} s: run nothing else meanwhile")
    say(f"{model}: {per_s:.1f} calls/s")
    return per_s


def _drive(platform: Platform, texts: Sequence[str], rate: float, scale: Scale, seed: int) -> Calls:
    due_s = poisson(rate, _WARM_UP_S + scale.seconds(_SECONDS), seed)
    calls = drive(workloads.infer(platform, "minilm", texts, due_s)).since(_WARM_UP_S)
    say(f"at {rate:.1f} calls/s: {calls}")
    return calls


def _gains(report: Report, peaks: Mapping[str, Sequence[float]]) -> None:
    """Adds bucket_gain (padded launches: with buckets over without) and packed_gain (as served
    over padded with buckets)."""
    for name, values in peaks.items():
        report.spread("" if name == "peak" else f"{name}_", peak_per_s=values)
    figures = report.figures
    report.add(
        bucket_gain=figures["padded_peak_per_s"] / figures["unbucketed_peak_per_s"],
        packed_gain=figures["peak_per_s"] / figures["padded_peak_per_s"],
    )


def _picture(runs: Sequence[Calls], peaks: Mapping[str, Sequence[float]]) -> Any:
    figure, (latency, speed) = picture(2, 9)
    units = np.concatenate([calls.units[calls.right] for calls in runs])
    some = slice(None, None, 1 + len(units) // _MAX_DOTS)
    latency.plot(units[some], latencies(runs)[some], ".", ms=2, color=DARK)
    latency.axhline(_TARGET_MS, color=TARGET_COLOUR, lw=1)
    latency.set_ylim(bottom=0)
    title = f"Calls of mixed length at {_LOAD:.0%} of the peak"
    label(latency, title, "tokens of the call", "ms from the due time")
    names = {"peak": "as served", "padded": "padded, buckets", "unbucketed": "padded, no buckets"}
    bars(speed, {names[n]: values for n, values in peaks.items()}, "Calls a second at the peak")
    return figure
