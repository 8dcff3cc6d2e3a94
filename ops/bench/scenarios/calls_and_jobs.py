"""`millrace bench together`: calls and a job on the same processes, and each of them alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import orjson
from matplotlib.figure import Figure

from jobs import clock
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, save_picture, say, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.ndjson_client import Stream
from ops.bench.load.open_loop import Calls, Driver, Load, drive
from ops.bench.results.plots import TARGET_COLOUR, latencies, shares
from ops.bench.results.report import Report
from ops.bench.results.statistics import slots_left

ASKED = {
    "call_p99_ratio": "<= 1.1",
    "items_ratio": ">= 0.8",
    "minilm_miss_share": "<= 0.01",
    "minilm_items_ratio": ">= 0.7",
}
_WORKERS, _MAX_BATCH, _LAUNCH_S = 6, 100, 0.1  # of batchstring
_CALLS_PER_S, _ITEMS = 300, 60_000
_MINILM_TARGET_MS, _MINILM_LOAD, _MINILM_ITEMS = 250, 0.5, 1500
_PEAK_TARGET_MS, _PEAK_IN_FLIGHT, _PEAK_S = 60_000, 128, 10.0
_WARM_UP_S, _ALONE_S, _LONGEST_S = 2.0, 12.0, 300.0


@dataclass(frozen=True, slots=True)
class Round:
    """Calls alone, the job's items a second alone, and both at the same time."""

    calls_alone: Calls
    items_alone_per_s: float
    calls: Calls
    items_per_s: float


@dataclass(frozen=True, slots=True)
class Sides:
    """load: the calls that are due at these times. work: posts a job, lets it run, reads and
    checks its results; its items a second."""

    name: str
    per_s: float
    load: Callable[[Sequence[float]], Load]
    work: Callable[[], float]


def run(effort: Scale = FULL) -> None:
    """Two parts, each on a platform of its own."""
    report = Report("together", ASKED, effort.quick)
    batchstring = _batchstring(report, effort)
    minilm = _minilm(report, effort)
    save_picture("together", _picture(batchstring, minilm), effort.quick)
    report.finish()


# -- the parts


def _batchstring(report: Report, effort: Scale) -> list[Round]:
    """items_ratio: items a second beside the calls / (items a second alone * slots_left)."""
    texts = [f"item {n} for batchstring" for n in range(int(effort.seconds(_ITEMS)))]
    right = [text.upper() for text in texts]
    with own_platform(_WORKERS, models_file(sample("batchstring"))) as platform:
        sides = Sides(
            *("batchstring", _CALLS_PER_S, lambda due_s: workloads.batchstring(platform, due_s)),
            work=lambda: _carry(platform.url, "batchstring", texts, right),
        )
        rounds = _rounds(sides, effort)
    left = slots_left(_CALLS_PER_S, _WORKERS, _MAX_BATCH, _LAUNCH_S)
    alone = [each.calls_alone.percentiles(99)[0] for each in rounds]
    beside = [each.calls.percentiles(99)[0] for each in rounds]
    report.add(**with_spread("call_p99_alone_ms", alone))
    report.add(**with_spread("call_p99_ms", beside))
    report.add(
        call_p99_ratio=median(beside) / median(alone),
        call_p50_alone_ms=median(each.calls_alone.percentiles(50)[0] for each in rounds),
        call_p50_ms=median(each.calls.percentiles(50)[0] for each in rounds),
        call_errors=sum(each.calls.errors + each.calls_alone.errors for each in rounds),
    )
    _items(report, "", rounds, left)
    return rounds


def _minilm(report: Report, effort: Scale) -> list[Round]:
    """Calls at half of the capacity that they have alone; minilm_items_ratio: items a second
    beside them / (items a second alone * (1 - load))."""
    texts = workloads.questions()
    called, items = texts[::2], texts[1::2] * 3
    items = items[: int(effort.seconds(_MINILM_ITEMS))]
    peak = sample("minilm", name="peak", target_ms=_PEAK_TARGET_MS)
    models = models_file(sample("minilm", target_ms=_MINILM_TARGET_MS), peak)
    with own_platform(1, models) as platform:
        peaks = [
            workloads.peak_per_s(
                platform, "peak", called, _PEAK_IN_FLIGHT, _WARM_UP_S, effort.seconds(_PEAK_S)
            )
            for _ in range(effort.rounds)
        ]
        report.add(**with_spread("minilm_peak_calls_per_s", peaks))
        sides = Sides(
            *("minilm", _MINILM_LOAD * median(peaks)),
            load=lambda due_s: workloads.infer(platform, "minilm", called, due_s),
            work=lambda: _carry(platform.url, "minilm", items, None),
        )
        rounds = _rounds(sides, effort)
    misses = [each.calls.miss_share(_MINILM_TARGET_MS) for each in rounds]
    alone = [each.calls_alone.miss_share(_MINILM_TARGET_MS) for each in rounds]
    report.add(
        minilm_miss_share=median(misses),
        minilm_miss_share_most=max(misses),
        minilm_miss_share_alone=median(alone),
        minilm_p95_ms=median(each.calls.percentiles(95)[0] for each in rounds),
        minilm_p95_alone_ms=median(each.calls_alone.percentiles(95)[0] for each in rounds),
    )
    _items(report, "minilm_", rounds, 1 - _MINILM_LOAD)
    return rounds


def _items(report: Report, prefix: str, rounds: Sequence[Round], left: float) -> None:
    """left: the share of the device that the calls leave."""
    alone = [each.items_alone_per_s for each in rounds]
    beside = [each.items_per_s for each in rounds]
    report.add(**with_spread(f"{prefix}items_per_s_alone", alone))
    report.add(**with_spread(f"{prefix}items_per_s", beside))
    report.add(**{f"{prefix}items_ratio": median(beside) / (median(alone) * left)})


# -- the runs


def _rounds(sides: Sides, effort: Scale) -> list[Round]:
    """Calls, the job, both: in turn."""
    sides.work()  # warms up
    return [_round(sides, effort, seed) for seed in range(effort.rounds)]


def _round(sides: Sides, effort: Scale, seed: int) -> Round:
    due_s = poisson(sides.per_s, _WARM_UP_S + effort.seconds(_ALONE_S), seed)
    alone = drive(sides.load(due_s)).since(_WARM_UP_S)
    items_alone = sides.work()
    beside, items = _both(sides, seed)
    for name, calls in (("alone", alone), ("beside the job", beside)):
        p50, p95, p99 = calls.percentiles(50, 95, 99)
        say(f"{sides.name}: calls {name} p50 {p50:.1f}, p95 {p95:.1f}, p99 {p99:.1f} ms; "
            f"{calls.said()}")  # fmt: skip
    say(f"{sides.name}: {items_alone:.0f} items/s alone, {items:.0f} beside the calls")
    return Round(alone, items_alone, beside, items)


def _both(sides: Sides, seed: int) -> tuple[Calls, float]:
    """The calls that were due while the job was posted, ran and was read; its items a second."""
    with Driver(sides.load(poisson(sides.per_s, _LONGEST_S, seed))) as driver:
        driver.go()
        clock.sleep(_WARM_UP_S)
        since_s = clock.monotonic()
        items_per_s = sides.work()
        until_s = clock.monotonic()
        driver.stop()
        calls = driver.calls()
    if until_s > calls.started_s + _LONGEST_S:
        raise BenchError(f"the job took longer than {_LONGEST_S:g} s of calls")
    return calls.between(since_s, until_s), items_per_s


def _carry(url: str, model: str, texts: Sequence[str], right: Sequence[Any] | None) -> float:
    """Items a second of a job, from the first byte posted to the last result read. right: its
    outputs; None: any are."""
    stream = Stream(url)
    since_s = clock.monotonic()
    lines = list(stream.results(stream.post(model, texts)))
    took_s = clock.monotonic() - since_s
    stream.close()
    results = [orjson.loads(line) for line in lines]
    if [result["seq"] for result in results] != list(range(len(texts))):
        raise BenchError(f"{len(results)} results of {len(texts)} items, or not in order")
    outputs = [result["output"] for result in results]
    if None in outputs or (right is not None and outputs != right):
        raise BenchError("the job has wrong results")
    return len(texts) / took_s


def _picture(batchstring: Sequence[Round], minilm: Sequence[Round]) -> Figure:
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    first, second, bars = figure.subplots(1, 3)
    for axes, name, rounds in ((first, "batchstring", batchstring), (second, "minilm", minilm)):
        shares(axes, latencies(each.calls_alone for each in rounds), "alone")
        shares(axes, latencies(each.calls for each in rounds), "beside a job")
        axes.set_title(f"Calls of {name}")
        axes.legend()
    second.axvline(_MINILM_TARGET_MS, color=TARGET_COLOUR, lw=1)
    left = slots_left(_CALLS_PER_S, _WORKERS, _MAX_BATCH, _LAUNCH_S)
    parts = (("batchstring", batchstring, left), ("minilm", minilm, 1 - _MINILM_LOAD))
    for row, (_, rounds, share) in enumerate(parts):
        whole = median(each.items_alone_per_s for each in rounds) * share
        for each in rounds:
            bars.plot(each.items_per_s / whole, row, "o", color="#08519c", ms=4)
        bars.barh(row, median(each.items_per_s for each in rounds) / whole, color="#9ecae1")
    bars.axvline(1, color="#bdbdbd")
    bars.set_yticks(range(len(parts)), [name for name, *_ in parts])
    bars.set_title("Items/s, of what calls leave")
    return figure
