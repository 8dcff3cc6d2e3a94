"""`millrace bench durable`: cost of durability, and of a large job to small ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from statistics import median
from typing import Any

from jobs import clock
from jobs.store import db
from ops.bench.baselines.celery_task_per_item import plain_celery
from ops.bench.baselines.postgres_ceiling import measure_ceiling
from ops.bench.baselines.procrastinate import procrastinate
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import database_of, own_platform, rate, say
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import submissions
from ops.bench.load.client import Client
from ops.bench.load.open_loop import driver
from ops.bench.results.plots import bars, distributions, label, picture
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_ITEM_BYTES = 150  # as JSON
_PER_S, _STEADY_CLIENTS, _LONGEST_S = 50, 16, 3600  # of jobs of one item next to a large job
_CLIENTS = 32  # of as many jobs of one item as can be
_ROUNDTRIPS, _WARM_UP_ROUNDTRIPS = 200, 20
_ROUNDTRIP_POLL_S, _END_POLL_S = 0.005, 0.2
#: Items, or jobs of one item.
_SIZES = {
    "echo": 200_000,
    "few": 50_000,
    "many": 1_000_000,
    "celery": 3_000,
    "small_jobs": 5_000,
    "peer_jobs": 1_500,
}

Sizes = Mapping[str, int]


@scenario(
    "durable",
    "durable_vs_sql >= 0.5",
    "durable_vs_celery >= 15",
    "growth_ratio <= 1.15",
    "submit_p99_ms <= 30",
    "submit_p99_running_ms <= 20",
    "roundtrip_p50_ms <= 20",
    "small_jobs_per_s >= 1000",
    "small_jobs_vs_procrastinate >= 1",
    "small_jobs_vs_celery >= 1",
)
def run(report: Report, _: Scale, share: float = 1.0) -> Any:
    """Measures each part on a platform of its own, free from what another part left.

    share: of all items, for a trial.
    """
    sizes = {name: max(100, int(size * share)) for name, size in _SIZES.items()}
    with own_platform() as platform:
        _roundtrips(report, platform)
        rates = _rates(report, platform, sizes)
        _small_jobs(report, platform, sizes)
    with own_platform() as platform:
        phases = _submissions(report, platform, sizes)
    costs = [_growth(sizes) for _ in range(FULL.rounds)]
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
    report.percentiles("roundtrip_{}_ms", took_ms[_WARM_UP_ROUNDTRIPS:], 50, 99)


def _rates(report: Report, platform: Platform, sizes: Sizes) -> dict[str, list[float]]:
    """Items a second of each side, in turn."""
    texts = _texts(sizes["echo"])
    with (
        _warm_client(platform, sizes) as client,
        measure_ceiling(db.plain_url(platform.settings.database_url), texts) as ceilings,
        plain_celery(platform.settings.broker) as celery,
    ):
        echo = sizes["echo"]
        sides = {
            "durable": rate("durable", echo, _timed(client, texts)),
            "celery": rate("celery", sizes["celery"], lambda: celery(sizes["celery"])),
            **{f"sql_{name}": rate(name, echo, each) for name, each in ceilings.items()},
        }
        rates = FULL.in_turn(sides)
    for name, values in rates.items():
        report.spread(f"{name}_", items_per_s=values)
    middle = {name: median(values) for name, values in rates.items()}
    best = max(rate for name, rate in middle.items() if name.startswith("sql_"))
    report.add(
        sql_items_per_s=best,
        durable_vs_sql=middle["durable"] / best,
        durable_vs_celery=middle["durable"] / middle["celery"],
    )
    return rates


def _small_jobs(report: Report, platform: Platform, sizes: Sizes) -> None:
    """Jobs of one item a second: ours through HTTP, from concurrent clients; in turn with tasks of
    Celery that stores results in the same PostgreSQL, and with procrastinate, both in process."""
    jobs, url = sizes["peer_jobs"], platform.settings.database_url

    def ours(_: int) -> float:
        """Runs jobs of one item."""
        small = submissions.run_small_jobs(platform, "echo", sizes["small_jobs"], _CLIENTS)
        return small["small_jobs_per_s"]

    with ExitStack() as peers:
        celery = peers.enter_context(plain_celery(platform.settings.broker, url))
        sides = {"": ours, "celery": rate("Celery with results", jobs, lambda: celery(jobs))}
        try:
            theirs = peers.enter_context(procrastinate(db.plain_url(url)))
        except BenchError as error:
            say(f"not compared with procrastinate: {error.message}")
        else:
            sides["procrastinate"] = rate("procrastinate", jobs, lambda: theirs(jobs))
        rates = FULL.in_turn(sides)
    own = rates.pop("")
    report.spread(small_jobs_per_s=own)
    for name, values in rates.items():
        report.spread(f"small_jobs_of_{name}_", per_s=values)
        report.add("small_jobs_vs_", **{name: median(own) / median(values)})


@contextmanager
def _warm_client(platform: Platform, sizes: Sizes) -> Iterator[Client]:
    """Client of a platform that has run a job."""
    with closing(Client(platform.url)) as client:
        _timed(client, _texts(sizes["few"]))()
        yield client


def _submissions(report: Report, platform: Platform, sizes: Sizes) -> dict[str, list[float]]:
    """ms to submit a job of one item, in each phase of a large job's life."""
    due_s = [n / _PER_S for n in range(_PER_S * _LONGEST_S)]
    small = ([f"small job {n}"] for n in range(len(due_s)))
    texts = _texts(sizes["many"])
    load = submissions.submissions(platform, "echo", due_s, small, max_in_flight=_STEADY_CLIENTS)
    with _warm_client(platform, sizes) as client, driver(load) as steady:
        steady.go()
        clock.sleep(2 * _END_POLL_S)
        times_s = [clock.monotonic()]
        job = client.post("echo", texts)
        times_s.append(clock.monotonic())
        while client.job(job)["finished_at"] is None:
            clock.sleep(_END_POLL_S)
        times_s.append(clock.monotonic())
        client.check_results(job, texts)
        times_s.append(clock.monotonic())
        steady.stop()
        posted = steady.calls()
    with database_of(platform) as database:
        submissions.await_end(database)
        submissions.check_outputs(database, submissions.job_ids(posted.job), len(posted))
    phases: dict[str, list[float]] = {}
    for n, (name, what) in enumerate(
        (("ingesting", "ingest"), ("running", "run"), ("exporting", "export"))
    ):
        phases[name] = posted.phase(*times_s[n : n + 2]).latency_ms.tolist()
        report.percentiles(f"submit_{{}}_{name}_ms", phases[name], 50, 99, 100)
        report.add(f"{what}_", items_per_s=sizes["many"] / (times_s[n + 1] - times_s[n]))
    report.percentiles("submit_{}_ms", phases["ingesting"] + phases["running"], 99)
    return phases


def _growth(sizes: Sizes) -> dict[str, float]:
    """µs an item on tables that are empty at first.

    They are those of small jobs, of a large one, and of small ones with its rows as history.
    """
    with own_platform() as platform, _warm_client(platform, sizes) as client:
        few, many = _timed(client, _texts(sizes["few"])), _timed(client, _texts(sizes["many"]))
        costs = {
            "few": median(few() for _ in range(FULL.rounds)) / sizes["few"],
            "many": many() / sizes["many"],
            "few_with_history": median(few() for _ in range(FULL.rounds)) / sizes["few"],
        }
    costs = {name: cost * 1e6 for name, cost in costs.items()}
    say("µs an item: " + ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items()))
    return costs


def _report_growth(report: Report, costs: Sequence[Mapping[str, float]]) -> None:
    """Compares each run with its own beginning; growth_ratio is the worse of the two medians."""
    for name in costs[0]:
        report.spread(f"{name}_", us_per_item=[run[name] for run in costs])
    size = [run["many"] / run["few"] for run in costs]
    history = [run["few_with_history"] / run["few"] for run in costs]
    report.spread("growth_with_", size_ratio=size, history_ratio=history)
    report.add(growth_ratio=max(median(size), median(history)))


def _picture(
    rates: Mapping[str, Sequence[float]],
    phases: Mapping[str, Sequence[float]],
    costs: Sequence[Mapping[str, float]],
) -> Any:
    figure, (speed, latency, growth) = picture(3, 10)
    bars(speed, rates, "Items a second, end to end")
    title = "To submit a job beside a large one"
    distributions(latency, phases, title, "ms", "share of the small jobs")
    latency.set_xscale("log")
    for name in costs[0]:
        points = [run[name] for run in costs]
        growth.plot(range(1, len(costs) + 1), points, "o-", label=name.replace("_", " "))
    growth.set_ylim(bottom=0)
    label(growth, "µs an item", "run", legend=True)
    return figure
