"""`millrace bench echo`: cost of the platform itself, in time and in memory."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from ops.bench.harness.platform import own_platform, rate, say
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load.client import Client
from ops.bench.load.submissions import run_small_jobs
from ops.bench.probes.memory import Samples, peak_mb, pids, watch_memory
from ops.bench.results.plots import DARK, label, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_ITEMS = 100_000
_FEW_ITEMS, _MANY_ITEMS = 10_000, 1_000_000
_SMALL_JOBS, _CLIENTS = 10_000, 32
_CALLS, _WARM_UP_CALLS = 1000, 100


@scenario(
    "echo",
    "echo_items_per_s >= 8000",
    "peak_rss_growth_mb <= 100",
    "mean_launch >= 20",
    "call_p50_ms <= 5",
    "call_p99_ms <= 15",
)
def run(report: Report, _: Scale) -> Any:
    """Uses two platforms: the second one runs only the jobs that its memory is measured over."""
    with own_platform() as platform, closing(Client(platform.url)) as client:
        latencies_ms = _calls(report, client)
        run_job(client, _FEW_ITEMS)  # warms up
        side = rate("echo", _ITEMS, partial(run_job, client, _ITEMS))
        report.spread(echo_items_per_s=FULL.in_turn({"echo": side})["echo"])
        report.add(**run_small_jobs(platform, "batchstring", _SMALL_JOBS, _CLIENTS))
    with own_platform() as platform, closing(Client(platform.url)) as client:
        samples = _memory(report, platform, client)
    return _picture(latencies_ms, samples)


def _calls(report: Report, client: Client) -> Sequence[float]:
    """Makes one call after the other to an idle model; ms each."""
    took_ms = [client.timed_call(n) for n in range(_WARM_UP_CALLS + _CALLS)][_WARM_UP_CALLS:]
    report.percentiles("call_{}_ms", took_ms, 50, 99, 100)
    return took_ms


def run_job(client: Client, count: int) -> float:
    """Seconds of a job of `echo`, from the first byte posted to the last result read."""
    texts = [f"item {n}" for n in range(count)]
    return client.run_job("echo", texts, texts).seconds


def _memory(report: Report, platform: Platform, client: Client) -> Samples:
    """Measures peaks of api and worker over a large job less those over a small one."""
    watched = {name: pid for name, pid in pids(platform).items() if name != "keeper"}
    with watch_memory(watched) as few:
        run_job(client, _FEW_ITEMS)
    say(f"echo: {_MANY_ITEMS:,} items")
    with watch_memory(watched) as many:
        took_s = run_job(client, _MANY_ITEMS)
    growths = {name: peak_mb(many, name) - peak_mb(few, name) for name in watched}
    for name, growth in growths.items():
        report.add(f"{name}_", peak_rss_mb=peak_mb(many, name), rss_growth_mb=growth)
    report.add(peak_rss_growth_mb=max(growths.values()), million_items_per_s=_MANY_ITEMS / took_s)
    return many


def _picture(latencies_ms: Sequence[float], watched: Samples) -> Any:
    figure, (calls, memory) = picture(2, 8, 2.6)
    calls.hist(latencies_ms, bins=60, color=DARK)
    label(calls, "Single calls to an idle model", "ms a call")
    for name, samples in watched.items():
        seconds, mb = zip(*samples[:: max(1, len(samples) // 200)], strict=True)
        memory.plot(seconds, mb, label=name)
    memory.set_ylim(bottom=0)
    label(memory, "Resident MiB over a job of a million items", "s", legend=True)
    return figure
