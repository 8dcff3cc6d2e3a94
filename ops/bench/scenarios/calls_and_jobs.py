"""`millrace bench together`: calls and a job on the same processes, and each of them alone."""

from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median
from typing import Any

from ops.bench.data import texts
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.client import Client
from ops.bench.load.open_loop import Load
from ops.bench.results.plots import TARGET_COLOUR, bars, picture
from ops.bench.results.report import Report, scenario
from ops.bench.results.side_by_side import Pair, measure_pair, plot_pairs, report_pairs
from ops.bench.results.statistics import slots_left

_WORKERS, _MAX_BATCH, _LAUNCH_S = 6, 100, 0.1  # of batchstring
_CALLS_PER_S, _ITEMS = 300, 60_000
_MINILM_TARGET_MS, _MINILM_LOAD, _MINILM_ITEMS = 250, 0.5, 1500
_WARM_UP_S, _PEAK_S, _ALONE_S, _LONGEST_S = 2.0, 10.0, 12.0, 300.0

#: (items a second alone, a pair whose work is items a second with calls).
Round = tuple[float, Pair[float]]


@scenario(
    "together",
    "call_p99_ratio <= 1.05",
    "items_ratio >= 0.95",
    "minilm_miss_share <= 0.01",
    "minilm_p95_ratio <= 1.5",
    "minilm_items_ratio >= 0.8",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures two models, each on a platform of its own."""
    left = slots_left(_CALLS_PER_S, _WORKERS, _MAX_BATCH, _LAUNCH_S)
    parts = {
        "batchstring": (_batchstring(report, scale, left), left),
        "minilm": (_minilm(report, scale), 1 - _MINILM_LOAD),
    }
    figure, axes = picture(3, 10)
    for part, (name, (rounds, _)) in zip(axes, parts.items(), strict=False):
        plot_pairs(part, [pair for _, pair in rounds], f"Calls of {name}", "beside a job")
    axes[1].axvline(_MINILM_TARGET_MS, color=TARGET_COLOUR, lw=1)
    got = {
        name: [pair.work / (median(alone for alone, _ in rounds) * left) for _, pair in rounds]
        for name, (rounds, left) in parts.items()
    }
    bars(axes[2], got, "Items/s, of what calls leave")
    axes[2].axvline(1, color="#bdbdbd")
    return figure


def _batchstring(report: Report, scale: Scale, left: float) -> list[Round]:
    items = [f"item {n} for batchstring" for n in range(int(scale.seconds(_ITEMS)))]
    outputs = [text.upper() for text in items]
    models = models_file(sample("batchstring"))
    with own_platform(_WORKERS, models) as platform, closing(Client(platform.url)) as client:
        rounds = _rounds(
            lambda due_s: workloads.batchstring(platform, due_s),
            _CALLS_PER_S,
            lambda: len(items) / client.run_job("batchstring", items, outputs).seconds,
            scale,
        )
    report_pairs(report, [pair for _, pair in rounds])
    _items(report, "", rounds, left)
    return rounds


def _minilm(report: Report, scale: Scale) -> list[Round]:
    """Makes calls at half of the capacity that they have alone."""
    asked = texts.questions()
    called = asked[::2]
    items = (asked[1::2] * 3)[: int(scale.seconds(_MINILM_ITEMS))]
    peak = sample("minilm", name="peak", target_ms=workloads.PEAK_TARGET_MS)
    models = models_file(sample("minilm", target_ms=_MINILM_TARGET_MS), peak)
    with own_platform(1, models) as platform, closing(Client(platform.url)) as client:
        seconds = scale.seconds(_PEAK_S)
        peaks = [
            workloads.peak_per_s(platform, "peak", called, _WARM_UP_S, seconds)
            for _ in range(scale.rounds)
        ]
        report.spread(minilm_peak_calls_per_s=peaks)
        rounds = _rounds(
            lambda due_s: workloads.infer(platform, "minilm", called, due_s),
            _MINILM_LOAD * median(peaks),
            lambda: len(items) / client.run_job("minilm", items).seconds,
            scale,
        )
    alone, during = ([getattr(pair, side) for _, pair in rounds] for side in ("alone", "during"))
    misses = [calls.miss_share(_MINILM_TARGET_MS) for calls in during]
    report.add(minilm_miss_share_most=max(misses))
    report.median(
        minilm_miss_share=misses,
        minilm_miss_share_alone=(calls.miss_share(_MINILM_TARGET_MS) for calls in alone),
        minilm_p95_ms=(calls.percentiles(95)[0] for calls in during),
        minilm_p95_alone_ms=(calls.percentiles(95)[0] for calls in alone),
    )
    figures = report.figures
    report.add(minilm_p95_ratio=figures["minilm_p95_ms"] / figures["minilm_p95_alone_ms"])
    _items(report, "minilm_", rounds, 1 - _MINILM_LOAD)
    return rounds


def _rounds(
    load: Callable[[Sequence[float]], Load], per_s: float, job: Callable[[], float], scale: Scale
) -> list[Round]:
    """Measures the job, calls, and both, in turn. job: returns its items a second."""
    job()  # warms up
    rounds = []
    for seed in range(scale.rounds):
        alone = job()
        pair = measure_pair(load, per_s, job, scale, seed, alone_s=_ALONE_S, longest_s=_LONGEST_S)
        say(f"{alone:.0f} items/s alone, {pair.work:.0f} with calls")
        rounds.append((alone, pair))
    return rounds


def _items(report: Report, prefix: str, rounds: Sequence[Round], left: float) -> None:
    """Adds items_ratio: items a second with calls, over those alone on what calls leave."""
    alone, during = [alone for alone, _ in rounds], [pair.work for _, pair in rounds]
    report.spread(prefix, items_per_s_alone=alone, items_per_s=during)
    report.add(prefix, items_ratio=median(during) / (median(alone) * left))
