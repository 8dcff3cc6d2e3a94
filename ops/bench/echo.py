"""`millrace bench echo`: what the platform itself costs, in time and in memory."""

import json
import subprocess
import sys
from collections.abc import Sequence
from signal import SIGTERM
from typing import Any

import numpy as np
import orjson
from matplotlib.figure import Figure
from sqlalchemy import Engine, text

from jobs import clock, ids
from jobs.store import db
from ops.bench.harness import BenchError, own_platform, save_picture, say, with_spread
from ops.bench.memory import MemoryWatch, pids
from ops.bench.report import Report
from ops.bench.stream import Stream
from ops.processes import die_with_parent
from ops.up import Platform

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
_LOOK_S = 0.05
_STALLED_S = 60.0  # the most that all small jobs may take once the last one is posted


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
    _echo(stream, _FEW_ITEMS)  # warms up
    rates = []
    for _ in range(_RUNS):
        rates.append(_ITEMS / _echo(stream, _ITEMS))
        say(f"echo: {rates[-1]:.0f} items/s")
    stream.close()
    report.add(**with_spread("echo_items_per_s", rates))


def _echo(stream: Stream, count: int) -> float:
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
        _echo(stream, _FEW_ITEMS)
    say(f"echo: {_MANY_ITEMS:,} items")
    with MemoryWatch(watched) as many:
        took_s = _echo(stream, _MANY_ITEMS)
    stream.close()
    growths = {name: many.peak_mb(name) - few.peak_mb(name) for name in watched}
    for name, growth in growths.items():
        report.add(**{f"{name}_peak_rss_mb": many.peak_mb(name), f"{name}_rss_growth_mb": growth})
    report.add(peak_rss_growth_mb=max(growths.values()), million_items_per_s=_MANY_ITEMS / took_s)
    return many


# -- many jobs of one item


def _small_jobs(report: Report, platform: Platform) -> None:
    """From the first byte posted to the last job's end."""
    say(f"batchstring: {_SMALL_JOBS:,} jobs from {_CLIENTS} clients")
    database = db.connect(platform.settings.database_url, pool_size=1)
    posted = _crowd(platform)
    found = [ids.parse("job", job) for job in posted["jobs"]]
    ended_s = _all_ended(database)
    with database.connect() as tx:
        row = tx.execute(_LAUNCHES, {"jobs": found}).one()
    database.dispose()
    if row.right != _SMALL_JOBS:
        raise BenchError(f"{row.right} of {_SMALL_JOBS:,} small jobs have the right output")
    report.add(
        mean_launch=row.mean_size,
        small_job_launches=row.launches,
        small_jobs_per_s=_SMALL_JOBS / (ended_s - posted["started_s"]),
        small_jobs_posted_per_s=_SMALL_JOBS / posted["posted_s"],
        client_cpu_share=posted["cpu_s"] / posted["posted_s"],
    )


def _crowd(platform: Platform) -> Any:
    arguments = [platform.url, "batchstring", str(_SMALL_JOBS), str(_CLIENTS)]
    command = die_with_parent([sys.executable, "-m", "ops.bench.crowd", *arguments], SIGTERM)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if done.returncode:
        raise BenchError("the clients failed; see above")
    return json.loads(done.stdout)


_OPEN_JOBS = text("SELECT count(*) FROM jobs WHERE finished_at IS NULL")


def _all_ended(database: Engine) -> float:
    """When no job is open any more, monotonic seconds."""
    deadline_s = clock.monotonic() + _STALLED_S
    while clock.monotonic() < deadline_s:
        with database.connect() as tx:
            if not tx.scalar(_OPEN_JOBS):
                return clock.monotonic()
        clock.sleep(_LOOK_S)
    raise BenchError(f"jobs are still open {_STALLED_S:g} s after the last one was posted")


_LAUNCHES = text("""
    WITH mine AS (
        SELECT r.launch_id, i.input, r.output FROM unnest(CAST(:jobs AS uuid[])) AS m (job_id)
        JOIN jobs j ON j.id = m.job_id AND j.state = 'completed'
        JOIN items i USING (job_id) JOIN results r USING (job_id, seq)
    )
    SELECT (SELECT count(*) FROM mine WHERE output = upper(input)) AS right,
           count(*) AS launches, avg(items + calls) AS mean_size
    FROM launches WHERE id IN (SELECT launch_id FROM mine)
""")


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
