"""`millrace bench durable`: cost of durability, and of a large job to small ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from jobs import clock
from jobs.store import db
from ops.bench.baselines.celery_task_per_item import plain_celery
from ops.bench.baselines.postgres_ceiling import measure_ceiling
from ops.bench.harness.platform import database_of, own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import small_jobs
from ops.bench.load.client import Client
from ops.bench.load.open_loop import Calls, driver
from ops.bench.results.plots import bars, label, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_RUNS = 3
_ITEM_BYTES = 150  # as JSON
_PER_S, _STEADY_CLIENTS, _LONGEST_S = 50, 16, 3600  # of jobs of one item next to a large job
_CLIENTS = 32  # of as many jobs of one item as can be
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

    def scaled(self, share: float) -> "Sizes":
        """Sizes times a share, at least 100 each."""
        return Sizes(*(max(100, int(getattr(self, name) * share)) for name in self.__slots__))


@scenario(
    "durable",
    "durable_vs_sql >= 0.25",
    "durable_vs_celery >= 15",
    "growth_ratio <= 1.15",
    "submit_p99_ms <= 60",
    "submit_p99_running_ms <= 30",
    "roundtrip_p50_ms <= 60",
    "small_jobs_per_s >= 300",
)
def run(report: Report, scale: Scale, share: float = 1.0) -> Any:
    """Measures each part on a platform of its own, free from what another part left.

    share: of all items, for a trial.
    """
    sizes = Sizes().scaled(share)
    with own_platform() as platform:
        _roundtrips(report, platform)
        rates = _rates(report, platform, sizes)
        runs = (
            small_jobs.run(platform, "echo", sizes.small_jobs, _CLIENTS).per_s for _ in range(_RUNS)
        )
        report.spread(small_jobs_per_s=list(runs))
    with own_platform() as platform:
        phases = _submissions(report, platform, sizes)
    costs = [_growth(sizes) for _ in range(_RUNS)]
    _report_growth(report, costs)
    return _picture(rates, phases, costs)


def _texts(items: int) -> list[str]:
    return [f"item {n} ".ljust(_ITEM_BYTES - 2, ".") for n in range(items)]


def _timed(client: Client, texts: Sequence[str]) -> Callable[[], float]:
    """Function that runs a job of `echo`; returns its seconds."""
    return lambda: client.run_job("echo", texts, texts).seconds


def _roundtrips(report: Report, platform: Platform) -> None:
    """Measures one-item jobs on an idle worker: ms from submission to result."""
    with closing(Client(platform.url, poll_s=_ROUNDTRIP_POLL_S)) as client:
        seconds = _timed(client, _texts(1))
        took_ms = [seconds() * 1000 for _ in range(_WARM_UP_ROUNDTRIPS + _ROUNDTRIPS)]
    p50, p99 = np.percentile(took_ms[_WARM_UP_ROUNDTRIPS:], [50, 99])
    report.add(roundtrip_p50_ms=p50, roundtrip_p99_ms=p99)


def _rates(report: Report, platform: Platform, sizes: Sizes) -> dict[str, list[float]]:
    """Items a second of each side, in turn: a slow minute of the machine slows all of them."""
    rates: dict[str, list[float]] = {}
    texts = _texts(sizes.echo)
    with (
        _warm_client(platform, sizes) as client,
        measure_ceiling(db.plain_url(platform.settings.database_url), texts) as ceilings,
        plain_celery(platform.settings.broker) as celery,
    ):
        sides = {
            "durable": (sizes.echo, _timed(client, texts)),
            "celery": (sizes.celery, lambda: celery(sizes.celery)),
            **{f"sql_{name}": (sizes.echo, seconds) for name, seconds in ceilings.items()},
        }
        for _ in range(_RUNS):
            for name, (items, seconds) in sides.items():
                rates.setdefault(name, []).append(items / seconds())
                say(f"{name}: {rates[name][-1]:.0f} items/s")
    report.spread(**{f"{name}_items_per_s": values for name, values in rates.items()})
    middle = {name: median(values) for name, values in rates.items()}
    best = max(rate for name, rate in middle.items() if name.startswith("sql_"))
    report.add(
        sql_items_per_s=best,
        durable_vs_sql=middle["durable"] / best,
        durable_vs_celery=middle["durable"] / middle["celery"],
    )
    return rates


@contextmanager
def _warm_client(platform: Platform, sizes: Sizes) -> Iterator[Client]:
    """Client of a platform that has run a job."""
    with closing(Client(platform.url)) as client:
        _timed(client, _texts(sizes.few))()
        yield client


def _submissions(report: Report, platform: Platform, sizes: Sizes) -> dict[str, list[float]]:
    """ms to submit a job of one item, in each phase of a large job's life."""
    due_s = [n / _PER_S for n in range(_PER_S * _LONGEST_S)]
    texts = _texts(sizes.many)
    with (
        _warm_client(platform, sizes) as client,
        driver(small_jobs.posts(platform, "echo", due_s, _STEADY_CLIENTS)) as steady,
    ):
        steady.go()
        clock.sleep(2 * _END_POLL_S)
        posting_s = clock.monotonic()
        job = client.post("echo", texts)
        stored_s = clock.monotonic()
        while client.job(job)["finished_at"] is None:
            clock.sleep(_END_POLL_S)
        ended_s = clock.monotonic()
        client.check_results(job, texts)
        read_s = clock.monotonic()
        steady.stop()
        posted = steady.calls()
    with database_of(platform) as database:
        small_jobs.all_ended(database)
        small_jobs.check(database, posted.job)
    phases = {
        "ingesting": _took_ms(posted, posting_s, stored_s),
        "running": _took_ms(posted, stored_s, ended_s),
        "exporting": _took_ms(posted, ended_s, read_s),
    }
    for name, took_ms in phases.items():
        if not took_ms:
            continue  # too short for a submission
        p50, p99 = np.percentile(took_ms, [50, 99])
        figures = {f"submit_p50_{name}_ms": p50, f"submit_p99_{name}_ms": p99}
        report.add(**figures, **{f"submit_max_{name}_ms": max(took_ms)})
    report.add(
        submit_p99_ms=float(np.percentile(phases["ingesting"] + phases["running"], 99)),
        ingest_items_per_s=sizes.many / (stored_s - posting_s),
        run_items_per_s=sizes.many / (ended_s - stored_s),
        export_items_per_s=sizes.many / (read_s - ended_s),
    )
    return phases


def _took_ms(posted: Calls, since_s: float, until_s: float) -> list[float]:
    return [float(ms) for ms in posted.between(since_s, until_s).latency_ms]


def _growth(sizes: Sizes) -> dict[str, float]:
    """µs an item on tables that are empty at first.

    They are those of small jobs, of a large one, and of small ones with its rows as history.
    """
    with own_platform() as platform, _warm_client(platform, sizes) as client:
        few, many = _timed(client, _texts(sizes.few)), _timed(client, _texts(sizes.many))
        costs = {
            "few": median(few() for _ in range(_RUNS)) / sizes.few,
            "many": many() / sizes.many,
            "few_with_history": median(few() for _ in range(_RUNS)) / sizes.few,
        }
    costs = {name: cost * 1e6 for name, cost in costs.items()}
    say("µs an item: " + ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items()))
    return costs


def _report_growth(report: Report, costs: Sequence[Mapping[str, float]]) -> None:
    """Compares each run with its own beginning; growth_ratio is the worse of the two medians."""
    report.spread(**{f"{name}_us_per_item": [run[name] for run in costs] for name in costs[0]})
    size = [run["many"] / run["few"] for run in costs]
    history = [run["few_with_history"] / run["few"] for run in costs]
    report.spread(growth_with_size_ratio=size, growth_with_history_ratio=history)
    report.add(growth_ratio=max(median(size), median(history)))


def _picture(
    rates: Mapping[str, Sequence[float]],
    phases: Mapping[str, Sequence[float]],
    costs: Sequence[Mapping[str, float]],
) -> Any:
    figure, (speed, latency, growth) = picture(3, 10)
    bars(speed, rates, "Items a second, end to end")
    for name, took_ms in phases.items():
        latency.plot(sorted(took_ms), np.linspace(0, 1, len(took_ms)), label=name)
    latency.set_xscale("log")
    label(latency, "To submit a job beside a large one", "ms; share of the small jobs", legend=True)
    for name in costs[0]:
        points = [run[name] for run in costs]
        growth.plot(range(1, len(costs) + 1), points, "o-", label=name.replace("_", " "))
    growth.set_ylim(bottom=0)
    label(growth, "µs an item", "run", legend=True)
    return figure
