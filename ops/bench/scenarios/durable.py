"""`millrace bench durable`: what durability costs, and what a large job costs the small ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from jobs import clock
from jobs.store import db
from ops.bench.baselines.celery_task_per_item import PlainCelery
from ops.bench.baselines.postgres_ceiling import measure_ceiling
from ops.bench.harness.platform import own_platform, save_picture, say, with_spread
from ops.bench.load import small_jobs
from ops.bench.load.ndjson_client import Stream
from ops.bench.load.roundtrip import RoundTrip
from ops.bench.load.steady_jobs import Sample, SteadyJobs
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

ASKED = {
    "durable_vs_sql": ">= 0.25",
    "durable_vs_celery": ">= 15",
    "growth_ratio": "<= 1.15",
    "submit_p99_ms": "<= 60",
    "submit_p99_running_ms": "<= 30",
    "roundtrip_p50_ms": "<= 60",
    "small_jobs_per_s": ">= 300",
}
_RUNS = 3
_PER_S, _CLIENTS = 50, 32  # of jobs of one item: the steady ones, the crowd
_ROUNDTRIPS, _WARM_UP_ROUNDTRIPS = 200, 20
_ROUNDTRIP_POLL_S, _END_POLL_S = 0.005, 0.2


@dataclass(frozen=True, slots=True)
class Sizes:
    """Items, or jobs of one item."""

    echo: int = 200_000
    few: int = 50_000
    many: int = 1_000_000
    celery: int = 3_000
    small_jobs: int = 5_000

    def scaled(self, scale: float) -> "Sizes":
        return Sizes(*(max(100, int(getattr(self, name) * scale)) for name in self.__slots__))


def run(scale: float = 1.0) -> None:
    """On a platform of its own for each part: what one leaves behind is no burden to the next.
    scale: a share of all items, for a look; figures of less than all are no figures."""
    sizes, report = Sizes().scaled(scale), Report("durable", ASKED)
    with own_platform() as platform:
        _roundtrips(report, platform)
        rates = _rates(platform, sizes)
        _compare(report, rates)
        _small_jobs(report, platform, sizes)
    with own_platform() as platform:
        phases = _beside_a_large_job(report, platform, sizes)
    costs = [_growth(sizes) for _ in range(_RUNS)]
    _compare_growth(report, costs)
    save_picture("durable", _picture(rates, phases, costs))
    report.finish()


# -- one job at a time


def _roundtrips(report: Report, platform: Platform) -> None:
    """One-item jobs, one after the other, to an idle worker: ms from submission to result."""
    stream = Stream(platform.url, poll_s=_ROUNDTRIP_POLL_S)
    carrier = RoundTrip(stream, 1)
    took_ms = [carrier.seconds() * 1000 for _ in range(_WARM_UP_ROUNDTRIPS + _ROUNDTRIPS)]
    stream.close()
    p50, p99 = np.percentile(took_ms[_WARM_UP_ROUNDTRIPS:], [50, 99])
    report.add(roundtrip_p50_ms=p50, roundtrip_p99_ms=p99)


def _rates(platform: Platform, sizes: Sizes) -> dict[str, list[float]]:
    """Items a second of each side, in turn: a slow minute of the machine slows all of them."""
    stream = Stream(platform.url)
    carrier = RoundTrip(stream, sizes.echo)
    url = db.plain_url(platform.settings.database_url)
    rates: dict[str, list[float]] = {}
    RoundTrip(stream, sizes.few).seconds()  # warms up
    with (
        measure_ceiling(url, carrier.texts) as ways,
        PlainCelery(platform.settings.broker) as celery,
    ):
        sides = {
            "durable": (sizes.echo, carrier.seconds),
            "celery": (sizes.celery, lambda: celery.seconds(sizes.celery)),
            **{f"sql_{name}": (sizes.echo, way) for name, way in ways.items()},
        }
        for _ in range(_RUNS):
            for name, (items, side) in sides.items():
                rates.setdefault(name, []).append(items / side())
                say(f"{name}: {rates[name][-1]:.0f} items/s")
    stream.close()
    return rates


def _compare(report: Report, rates: Mapping[str, Sequence[float]]) -> None:
    for name, values in rates.items():
        report.add(**with_spread(f"{name}_items_per_s", values))
    middle = {name: median(values) for name, values in rates.items()}
    best = max(rate for name, rate in middle.items() if name.startswith("sql_"))
    report.add(
        sql_items_per_s=best,
        durable_vs_sql=middle["durable"] / best,
        durable_vs_celery=middle["durable"] / middle["celery"],
    )


def _small_jobs(report: Report, platform: Platform, sizes: Sizes) -> None:
    runs = [
        small_jobs.run(platform, "echo", sizes.small_jobs, _CLIENTS).per_s for _ in range(_RUNS)
    ]
    report.add(**with_spread("small_jobs_per_s", runs))


# -- small jobs beside a large one


def _beside_a_large_job(report: Report, platform: Platform, sizes: Sizes) -> dict[str, list[float]]:
    """ms to submit a job of one item, in each phase of a large job's life."""
    stream = Stream(platform.url)
    RoundTrip(stream, sizes.few).seconds()  # warms up
    carrier = RoundTrip(stream, sizes.many)
    with SteadyJobs(platform.url, "echo", _PER_S) as pacer:
        clock.sleep(2 * _END_POLL_S)
        posting_s = clock.monotonic()
        job = carrier.post()
        stored_s = clock.monotonic()
        while stream.job(job)["finished_at"] is None:
            clock.sleep(_END_POLL_S)
        ended_s = clock.monotonic()
        carrier.read(job)
        read_s = clock.monotonic()
    stream.close()
    _check(platform, pacer.samples)
    phases = {
        "ingesting": _within(pacer.samples, posting_s, stored_s),
        "running": _within(pacer.samples, stored_s, ended_s),
        "exporting": _within(pacer.samples, ended_s, read_s),
    }
    for name, took_ms in phases.items():
        p50, p99 = np.percentile(took_ms, [50, 99])
        figures = {f"submit_p50_{name}_ms": p50, f"submit_p99_{name}_ms": p99}
        report.add(**figures, **{f"submit_max_{name}_ms": max(took_ms)})
    both = phases["ingesting"] + phases["running"]
    report.add(submit_p99_ms=float(np.percentile(both, 99)))
    report.add(
        ingest_items_per_s=sizes.many / (stored_s - posting_s),
        run_items_per_s=sizes.many / (ended_s - stored_s),
        export_items_per_s=sizes.many / (read_s - ended_s),
    )
    return phases


def _within(samples: Sequence[Sample], since_s: float, until_s: float) -> list[float]:
    return [took_ms for due_s, took_ms, _ in samples if since_s <= due_s < until_s]


def _check(platform: Platform, samples: Sequence[Sample]) -> None:
    database = db.connect(platform.settings.database_url, pool_size=1)
    try:
        small_jobs.all_ended(database)
        small_jobs.check(database, [job for _, _, job in samples])
    finally:
        database.dispose()


# -- does it stay as fast as it grows?


def _growth(sizes: Sizes) -> dict[str, float]:
    """µs an item, on tables that are empty at first: of small jobs, of a large one, and of small
    jobs again, with the large one's rows as history."""
    with own_platform() as platform:
        stream = Stream(platform.url)
        few, many = RoundTrip(stream, sizes.few), RoundTrip(stream, sizes.many)
        few.seconds()  # warms up
        costs = {
            "few": median(few.seconds() for _ in range(_RUNS)) / sizes.few,
            "many": many.seconds() / sizes.many,
            "few_with_history": median(few.seconds() for _ in range(_RUNS)) / sizes.few,
        }
        stream.close()
    costs = {name: cost * 1e6 for name, cost in costs.items()}
    say("µs an item: " + ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items()))
    return costs


def _compare_growth(report: Report, costs: Sequence[Mapping[str, float]]) -> None:
    """Each run against its own beginning; growth_ratio is the worse of the two medians."""
    for name in costs[0]:
        report.add(**with_spread(f"{name}_us_per_item", [run[name] for run in costs]))
    size = [run["many"] / run["few"] for run in costs]
    history = [run["few_with_history"] / run["few"] for run in costs]
    report.add(**with_spread("growth_with_size_ratio", size))
    report.add(**with_spread("growth_with_history_ratio", history))
    report.add(growth_ratio=max(median(size), median(history)))


def _picture(
    rates: Mapping[str, Sequence[float]],
    phases: Mapping[str, Sequence[float]],
    costs: Sequence[Mapping[str, float]],
) -> Figure:
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    speed, latency, growth = figure.subplots(1, 3)
    for row, values in enumerate(rates.values()):
        speed.barh(row, median(values), color="#9ecae1")
        speed.plot(values, [row] * len(values), "o", color="#08519c", markersize=4)
    speed.set_yticks(range(len(rates)), [name.replace("_", " ") for name in rates])
    speed.invert_yaxis()
    speed.set_title("Items a second, end to end")
    for name, took_ms in phases.items():
        latency.plot(sorted(took_ms), np.linspace(0, 1, len(took_ms)), label=name)
    latency.set_xscale("log")
    latency.set_xlabel("ms; share of the small jobs")
    latency.set_title("To submit a job beside a large one")
    latency.legend()
    for name in costs[0]:
        growth.plot(range(1, len(costs) + 1), [run[name] for run in costs], "o-", label=name)
    growth.set_ylim(bottom=0)
    growth.set_xlabel("run")
    growth.set_title("µs an item")
    growth.legend([name.replace("_", " ") for name in costs[0]])
    return figure
