"""`millrace bench echo`: what the platform itself costs, in time and in memory."""

from collections.abc import Sequence

import numpy as np
import orjson
from matplotlib.figure import Figure

from jobs import clock
from ops.bench.harness.platform import BenchError, own_platform, save_picture, say, with_spread
from ops.bench.load import small_jobs
from ops.bench.load.ndjson_client import Stream
from ops.bench.probes.memory import MemoryWatch, pids
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

ASKED = {
    "echo_items_per_s": ">= 8000",
    "peak_rss_growth_mb": "<= 100",
    "mean_launch": ">= 20",
    "call_p50_ms": "<= 5",
    "call_p99_ms": "<= 15",
}
_RUNS = 3
_ITEMS = 100_000
_FEW_ITEMS, _MANY_ITEMS = 10_000, 1_000_000
_SMALL_JOBS, _CLIENTS = 10_000, 32
_CALLS, _WARM_UP_CALLS = 1000, 100


def run() -> None:
    """On two platforms: the second has seen nothing but the jobs its memory is measured over."""
    report = Report("echo", ASKED)
    with own_platform() as platform:
        latencies_ms = _calls(report, platform)
        _items(report, platform)
        _small_jobs(report, platform)
    with own_platform() as platform:
        watch = _memory(report, platform)
    save_picture("echo", _picture(latencies_ms, watch))
    report.finish()


def _calls(report: Report, platform: Platform) -> Sequence[float]:
    """One call after the other over one connection, to an idle model; ms each."""
    stream = Stream(platform.url)
    latencies_ms = []
    for n in range(_WARM_UP_CALLS + _CALLS):
        since_s = clock.monotonic()
        output = stream.call("echo", f"call {n}")
        latencies_ms.append((clock.monotonic() - since_s) * 1000)
        if output != f"call {n}":
            raise BenchError(f"call {n} was answered with {output!r}")
    stream.close()
    measured = latencies_ms[_WARM_UP_CALLS:]
    p50, p99 = np.percentile(measured, [50, 99])
    report.add(call_p50_ms=p50, call_p99_ms=p99, call_max_ms=max(measured))
    return measured


def _items(report: Report, platform: Platform) -> None:
    stream = Stream(platform.url)
    run_job(stream, _FEW_ITEMS)  # warms up
    rates = []
    for _ in range(_RUNS):
        rates.append(_ITEMS / run_job(stream, _ITEMS))
        say(f"echo: {rates[-1]:.0f} items/s")
    stream.close()
    report.add(**with_spread("echo_items_per_s", rates))


def run_job(stream: Stream, count: int) -> float:
    """Seconds from the first byte posted to the last result read; every result is checked."""
    since_s = clock.monotonic()
    job = stream.post("echo", (f"item {n}" for n in range(count)))
    seen = 0
    for line in stream.results(job):
        result = orjson.loads(line)
        if result["seq"] != seen or result["output"] != f"item {seen}":
            raise BenchError(f"in place of the result of item {seen}: {result}")
        seen += 1
    if seen != count:
        raise BenchError(f"{seen} results of {count:,} items")
    return clock.monotonic() - since_s


def _memory(report: Report, platform: Platform) -> MemoryWatch:
    """Peaks over a large job less peaks over a small one: of the api and of the worker."""
    stream = Stream(platform.url)
    watched = {name: pid for name, pid in pids(platform).items() if name != "keeper"}
    with MemoryWatch(watched) as few:
        run_job(stream, _FEW_ITEMS)
    say(f"echo: {_MANY_ITEMS:,} items")
    with MemoryWatch(watched) as many:
        took_s = run_job(stream, _MANY_ITEMS)
    stream.close()
    growths = {name: many.peak_mb(name) - few.peak_mb(name) for name in watched}
    for name, growth in growths.items():
        report.add(**{f"{name}_peak_rss_mb": many.peak_mb(name), f"{name}_rss_growth_mb": growth})
    report.add(peak_rss_growth_mb=max(growths.values()), million_items_per_s=_MANY_ITEMS / took_s)
    return many


def _small_jobs(report: Report, platform: Platform) -> None:
    took = small_jobs.run(platform, "batchstring", _SMALL_JOBS, _CLIENTS)
    report.add(
        mean_launch=took.mean_launch,
        small_job_launches=took.launches,
        small_jobs_per_s=took.per_s,
        small_jobs_posted_per_s=took.posted_per_s,
        client_cpu_share=took.client_cpu_share,
    )


def _picture(latencies_ms: Sequence[float], watch: MemoryWatch) -> Figure:
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(latencies_ms, bins=60, color="#08519c")
    left.set_xlabel("ms a call")
    left.set_title("Single calls to an idle model")
    for name, samples in watch.samples.items():
        seconds, mb = zip(*samples[:: max(1, len(samples) // 200)], strict=True)
        right.plot(seconds, mb, label=name)
    right.set_ylim(bottom=0)
    right.set_xlabel("s")
    right.set_title("Resident MiB over a job of a million items")
    right.legend()
    return figure
