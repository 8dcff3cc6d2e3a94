"""`millrace bench fairness`: small tenants beside one that floods, and whose device time it is."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ops.bench.fairness import backlogs, flood, identity, throughput
from ops.bench.fairness.backlogs import EQUAL, FIRST, WEIGHED, Window
from ops.bench.fairness.flood import FLOOD, NINE, Side
from ops.bench.fairness.identity import Cost
from ops.bench.fairness.tenants import Tenants
from ops.bench.fairness.throughput import SINGLE, TEN
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, save_picture, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.results.plots import latencies, shares
from ops.bench.results.report import Report
from ops.bench.results.statistics import jain, share_error

ASKED = {
    "light_job_ratio": "<= 1.5",
    "light_call_ratio": "<= 1.2",
    "jain": ">= 0.98",
    "share_error": "<= 0.05",
    "throughput_ratio": ">= 0.97",
    "auth_cpu_ms": "<= 0.1",
}
_WORKERS = 6

Sides = Sequence[tuple[Side, Side]]


def run(effort: Scale = FULL) -> None:
    """The parts one after the other; within each, its sides in turn."""
    report = Report("fairness", ASKED, effort.quick)
    with (
        own_platform(_WORKERS, models_file(sample("batchstring"))) as platform,
        Tenants(platform, [FLOOD, *NINE, FIRST, *EQUAL, *WEIGHED, SINGLE, *TEN]) as tenants,
    ):
        sides = flood.rounds(platform, tenants, effort)
        _jobs_beside_a_flood(report, sides)
        _calls_beside_a_flood(report, sides)
        equal = backlogs.equal(tenants, effort)
        weighed = backlogs.weighed(tenants, effort)
        _shares(report, equal, weighed)
        _throughput(report, throughput.rounds(tenants, effort))
    _cpu(report, identity.rounds(effort))
    save_picture("fairness", _picture(sides, equal, weighed), effort.quick)
    report.finish()


# -- the figures


def _jobs_beside_a_flood(report: Report, sides: Sides) -> None:
    """light_job_ratio: of the medians of the rounds' p95."""
    p95s = {}
    for n, name in enumerate(("_alone", "")):
        found = [np.percentile(pair[n].job_ms, [50, 95]) for pair in sides]
        p95s[name] = [float(p95) for _, p95 in found]
        report.add(**{f"light_job_p50{name}_ms": median(float(p50) for p50, _ in found)})
        report.add(**with_spread(f"light_job_p95{name}_ms", p95s[name]))
    report.add(light_job_ratio=median(p95s[""]) / median(p95s["_alone"]))


def _calls_beside_a_flood(report: Report, sides: Sides) -> None:
    p95s = {}
    for n, name in enumerate(("_alone", "")):
        found = [pair[n].calls.percentiles(50, 95) for pair in sides]
        p95s[name] = [p95 for _, p95 in found]
        report.add(**{f"light_call_p50{name}_ms": median(p50 for p50, _ in found)})
        report.add(**with_spread(f"light_call_p95{name}_ms", p95s[name]))
        submits = [pair[n].submits.percentiles(95)[0] for pair in sides]
        report.add(**{f"light_submit_p95{name}_ms": median(submits)})
    report.add(
        light_call_ratio=median(p95s[""]) / median(p95s["_alone"]),
        light_call_errors=sum(side.calls.errors for pair in sides for side in pair),
    )


def _shares(report: Report, equal: Sequence[Window], weighed: Window) -> None:
    found = [jain(list(window.device_s.values())) for window in equal]
    if indices := [index for index in found if index is not None]:
        report.add(**with_spread("jain", indices))
    error = share_error(weighed.device_s, WEIGHED)
    if error is not None:
        report.add(share_error=error)
    report.add(
        jain_window_s=median(window.seconds for window in equal), share_window_s=weighed.seconds
    )


def _throughput(report: Report, rates: Sequence[tuple[float, float]]) -> None:
    single, ten = zip(*rates, strict=True)
    report.add(**with_spread("items_per_s_single", single))
    report.add(**with_spread("items_per_s_ten", ten))
    report.add(throughput_ratio=median(ten) / median(single))


def _cpu(report: Report, costs: Sequence[tuple[Cost, Cost]]) -> None:
    """auth_cpu_ms: of the api's process, in which all of it is done but for what Redis runs."""
    added = [limited["api"] - without["api"] for without, limited in costs]
    report.add(
        api_cpu_ms_without=median(without["api"] for without, _ in costs),
        api_cpu_ms_with=median(limited["api"] for _, limited in costs),
        auth_cpu_ms=median(added),
        auth_cpu_ms_most=max(added),
        auth_redis_cpu_ms=median(limited["redis"] - without["redis"] for without, limited in costs),
    )


# -- the picture


def _picture(sides: Sides, equal: Sequence[Window], weighed: Window) -> Figure:
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    jobs, calls, bars = figure.subplots(1, 3)
    for n, name in enumerate(("alone", "beside a flood")):
        shares(jobs, np.concatenate([pair[n].job_ms for pair in sides]), name)
        shares(calls, latencies(pair[n].calls for pair in sides), name)
    jobs.set_xlabel("ms from creation to end")
    jobs.set_ylabel("share of jobs")
    jobs.set_title("Jobs of 20 items, of nine tenants")
    calls.set_title("Their calls")
    jobs.legend()
    calls.legend()
    _bars(bars, equal, EQUAL, 0)
    _bars(bars, [weighed], WEIGHED, len(EQUAL) + 1)
    bars.set_yticks(
        [*range(len(EQUAL)), *range(len(EQUAL) + 1, len(EQUAL) + 1 + len(WEIGHED))],
        [*(f"{weight:g}" for weight in (*EQUAL.values(), *WEIGHED.values()))],
    )
    bars.set_ylabel("weight")
    bars.set_title("Device time, of what is due")
    return figure


def _bars(axes: Axes, windows: Sequence[Window], weights: Mapping[str, float], first: int) -> None:
    """What each got, of what it should have by weight: a bar for the median, a dot a window."""
    whole = sum(weights.values())
    for row, (name, weight) in enumerate(weights.items(), start=first):
        due = [weight / whole * sum(window.device_s.values()) for window in windows]
        got = [w.device_s[name] / d for w, d in zip(windows, due, strict=True) if d]
        if got:
            axes.barh(row, median(got), color="#9ecae1")
            axes.plot(got, [row] * len(got), "o", color="#08519c", ms=3)
    axes.axvline(1, color="#bdbdbd")
