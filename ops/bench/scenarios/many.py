"""`millrace bench many`: cost of a call and of an item where there are many of everything.

Each row compares many with few of one kind. A cost is CPU time of all processes, from /proc.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import cycle, islice
from statistics import median

import httpx
import numpy as np
from sqlalchemy import Engine, text

from jobs import clock
from jobs.processes import packages
from ops.bench.harness.fill_queue import fill
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import database_of, own_platform, say, wait_until
from ops.bench.harness.repeat import repeat
from ops.bench.harness.scale import Scale
from ops.bench.load.arrivals import poisson
from ops.bench.load.client import Client
from ops.bench.load.open_loop import Load, driver
from ops.bench.probes.cpu import Meter, whole_meter
from ops.bench.results.report import Report, scenario
from ops.processes.children import Child
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform

_ROUNDS = 2
_READY_S, _STALLED_S = 180.0, 300.0
_POLL_S = 0.2
_IDLE_S, _CALLS_S, _CALLS_PER_S = 5.0, 12.0, 100
_SETTLE_S = 15.0  # processes that are ready go on with what they start
_BUSY_MODELS = 3
_SUBMISSIONS = 200
_SAMPLE_S = 0.5

_LAUNCHED = text("SELECT coalesce(sum(items), 0) FROM launches")
_READY_WORKERS = text("SELECT count(*) FROM workers WHERE state = 'ready'")


@scenario("many", *(f"many_{row}_cost_ratio <= 1.3" for row in (
    "calls", "jobs", "tenants", "models", "workers", "apis",
)))  # fmt: skip
def run(report: Report, scale: Scale, rows: Sequence[str] = ()) -> None:
    """Measures each row on platforms of its own. rows: names of ROWS; empty: all."""
    for name in rows or ROWS:
        say(f"many {name}")
        since_s = clock.monotonic()
        ROWS[name](report, scale)
        report.add(**{f"many_{name}_took_s": clock.monotonic() - since_s})


# -- queues


def _jobs(report: Report, scale: Scale) -> None:
    """1,000,000 queued jobs of one item; then jobs are submitted beside them."""
    few, many, items = (2_000, 20_000, 1_000) if scale.quick else (20_000, 1_000_000, 6_000)
    costs = {}
    for side, jobs in (("few", few), ("many", many)):
        with own_platform(models=models_file(sample("echo"))) as platform:
            costs[side] = _queue_cost(platform, jobs, 1, items)
            with closing(Client(platform.url)) as client:
                took_ms = [_submission_ms(client, n) for n in range(_SUBMISSIONS)]
            report.percentiles(f"many_jobs_submit_{{}}_ms_{side}", took_ms, 50, 95)
    _report_costs(report, "jobs", costs)


def _tenants(report: Report, scale: Scale) -> None:
    """10,000 tenants with two queued jobs each, and as many jobs of ten tenants."""
    jobs, tenants, items = (2_000, 1_000, 500) if scale.quick else (20_000, 10_000, 6_000)
    costs = {}
    for side, count in (("few", 10), ("many", tenants)):
        with own_platform(models=models_file(sample("echo"))) as platform:
            costs[side] = _queue_cost(platform, jobs, count, items)
    _report_costs(report, "tenants", costs)


def _queue_cost(platform: Platform, jobs: int, tenants: int, items: int) -> float:
    """ms of CPU an item, while a worker empties a queue of jobs of one item."""
    meter = whole_meter(platform)
    with database_of(platform) as database:
        since_s = clock.monotonic()
        fill(database, "echo@1", jobs, tenants)
        took_s = clock.monotonic() - since_s
        say(f"{jobs:,} jobs of {tenants:,} tenants were written in {took_s:.0f} s")
        first = _await_items(database, _launched(database) + items // 10)
        before_s = sum(meter.read().values())
        last = _await_items(database, first + items)
        used_s = sum(meter.read().values()) - before_s
    return used_s * 1000 / (last - first)


def _launched(database: Engine) -> int:
    with database.begin() as tx:
        return int(tx.scalars(_LAUNCHED).one())


def _await_items(database: Engine, count: int) -> int:
    """Waits until so many items have been launched; returns their number."""
    wait_until(lambda: _launched(database) >= count, "items ran", _STALLED_S, _POLL_S)
    return _launched(database)


def _submission_ms(client: Client, n: int) -> float:
    since_s = clock.monotonic()
    client.post("echo", [f"item {n}"])
    return (clock.monotonic() - since_s) * 1000


# -- models, calls, processes


def _models(report: Report, scale: Scale) -> None:
    """50 models in one worker, of which three are busy."""
    with ExitStack() as stack:
        sides = {}
        for side, count in (("few", _BUSY_MODELS), ("many", 10 if scale.quick else 50)):
            models = [sample("echo", name=f"model-{n}") for n in range(count)]
            platform = stack.enter_context(own_platform(models=models_file(*models)))
            _await_models(platform, count)
            load = _echo_load(platform.url, _CALLS_PER_S, scale, _BUSY_MODELS)
            sides[side] = partial(_calls_cost, whole_meter(platform), [load])
        costs = _in_turn(sides)
    _report_costs(report, "models", costs)


def _calls(report: Report, scale: Scale) -> None:
    """10,000 open calls on one api, in place of 200, once their connections are open."""
    model = sample("batchstring", target_ms=100_000)
    few, many, calls = (200, 1_000, 3_000) if scale.quick else (200, 10_000, 30_000)
    with own_platform(models=models_file(model), max_queued_calls=2 * many) as platform:
        _await_models(platform, 1)
        meter = whole_meter(platform)
        texts = [f"text {n}" for n in range(100)]
        bodies = [
            f'{{"model": "batchstring", "input": "{each}", "timeout_ms": 100000}}' for each in texts
        ]
        outputs = [each.upper() for each in texts]
        load = partial(Load, f"{platform.url}/infer", [0.0] * calls, bodies, outputs)
        costs = _in_turn(
            {
                side: partial(_steady_cost, meter, load(max_in_flight=count, grace_s=120.0))
                for side, count in (("few", few), ("many", many))
            }
        )
    _report_costs(report, "calls", costs)


def _workers(report: Report, scale: Scale) -> None:
    """64 workers in place of two; the CPU that they use when idle is another figure."""
    costs = {}
    for side, count in (("few", 2), ("many", 8 if scale.quick else 64)):
        with own_platform(count, models_file(sample("echo"))) as platform:
            _await_workers(platform, count)
            costs[side] = _cost_above_idle(
                report, f"many_workers_idle_cores_{side}", whole_meter(platform),
                [_echo_load(platform.url, _CALLS_PER_S, scale)],
            )  # fmt: skip
    _report_costs(report, "workers", costs)


def _apis(report: Report, scale: Scale) -> None:
    """Eight apis in place of one; as many connections send the calls in both cases."""
    most = 3 if scale.quick else 8
    costs = {}
    for side, count in (("few", 1), ("many", most)):
        with (
            own_platform(models=models_file(sample("echo"))) as platform,
            _more_apis(platform, count - 1) as (urls, apis),
        ):
            _await_models(platform, 1)
            meter = whole_meter(platform, {"more": [each.pid or 0 for each in apis]})
            each_per_s = _CALLS_PER_S / most
            loads = [_echo_load(url, each_per_s, scale) for url in islice(cycle(urls), most)]
            name = f"many_apis_idle_cores_{side}"
            costs[side] = _cost_above_idle(report, name, meter, loads)
    _report_costs(report, "apis", costs)


@contextmanager
def _more_apis(platform: Platform, count: int) -> Iterator[tuple[list[str], list[Child]]]:
    """Starts more apis on a platform; yields the addresses of all, and the new processes."""
    settings = [platform.settings.evolve(port=free_port()) for _ in range(count)]
    argv, logs = packages.command("api"), platform.settings.home / "logs"
    apis = [
        Child(f"api-{n}", argv, each.environment(), logs / f"api-{n}.log")
        for n, each in enumerate(settings, 2)
    ]
    with ExitStack() as stack:
        for api in apis:
            api.start()
            stack.callback(_end, api)
        urls = [platform.url, *(each.url for each in settings)]
        wait_until(lambda: all(map(_is_ready, urls)), "all apis are ready", _READY_S)
        yield urls, apis


def _end(process: Child) -> None:
    process.terminate()
    wait_until(lambda: not process.alive(), f"{process.name} has ended", _READY_S)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _await_workers(platform: Platform, count: int) -> None:
    def ready() -> bool:
        """Returns True once so many workers are ready."""
        with database.begin() as tx:
            return bool(tx.scalars(_READY_WORKERS).one() >= count)

    with database_of(platform) as database:
        wait_until(ready, f"{count} workers are ready", _READY_S)


def _await_models(platform: Platform, count: int) -> None:
    def ready() -> bool:
        """Returns True once all models are ready in a worker."""
        found = httpx.get(f"{platform.url}/models", timeout=5).json()["data"]
        return sum(bool(each["ready"]) for each in found) >= count

    wait_until(ready, f"{count} models are ready", _READY_S)


def _echo_load(url: str, per_s: float, scale: Scale, models: int = 0) -> Load:
    """Calls at a rate, to one echo or to so many models in turn."""
    names = [f"model-{n}" for n in range(models)] or ["echo"]
    bodies = [f'{{"model": "{name}", "input": "text"}}' for name in names]
    due_s = poisson(per_s, scale.seconds(_CALLS_S), 1)
    return Load(f"{url}/infer", due_s, bodies, ["text"] * len(bodies))


def _in_turn(sides: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Median cost of each side, measured in turn after a round that warms up."""
    costs: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(1 + _ROUNDS):
        for side, measure in sides.items():
            costs[side].append(measure())
    return {side: median(found[1:]) for side, found in costs.items()}


def _cost_above_idle(report: Report, name: str, meter: Meter, loads: Sequence[Load]) -> float:
    clock.sleep(_SETTLE_S)
    idle = meter.cores(_IDLE_S)
    report.add(**{name: idle})
    return median(_calls_cost(meter, loads, idle) for _ in range(_ROUNDS))


def _calls_cost(meter: Meter, loads: Sequence[Load], idle_cores: float = 0.0) -> float:
    """ms of CPU a call of loads that run together, beyond that of idle processes."""
    with ExitStack() as stack:
        drivers = [stack.enter_context(driver(load)) for load in loads]
        before_s, since_s = sum(meter.read().values()), clock.monotonic()
        for each in drivers:
            each.go()
        all_calls = [each.calls().all_right() for each in drivers]
        took_s = clock.monotonic() - since_s
        used_s = sum(meter.read().values()) - before_s - idle_cores * took_s
    cost_ms = used_s * 1000 / sum(map(len, all_calls))
    say(f"{cost_ms:.3f} ms of CPU a call in {took_s:.1f} s; {all_calls[0]}")
    return cost_ms


def _steady_cost(meter: Meter, load: Load) -> float:
    """ms of CPU a call of a closed loop, from the time when each connection has had a response
    until the last call was sent."""
    samples: list[tuple[float, float]] = []

    def read() -> None:
        """Takes a sample: time, and CPU so far."""
        samples.append((clock.monotonic(), sum(meter.read().values())))

    read()
    with driver(load) as sender, repeat(_SAMPLE_S, read):
        sender.go()
        calls = sender.calls().all_right()
    read()
    ended_s = np.sort(calls.ended_s)
    since_s, until_s = ended_s[load.max_in_flight], float(calls.sent_s.max())
    count = int(((ended_s > since_s) & (ended_s <= until_s)).sum())
    times, used = zip(*samples, strict=True)
    since_used, until_used = np.interp(
        [calls.started_s + since_s, calls.started_s + until_s], times, used
    )
    cost_ms = float(until_used - since_used) * 1000 / count
    say(f"{load.max_in_flight:,} open: {cost_ms:.3f} ms of CPU each of {count:,} calls; {calls}")
    return cost_ms


def _report_costs(report: Report, row: str, costs: Mapping[str, float]) -> None:
    report.add(**{f"many_{row}_cpu_ms_{side}": cost for side, cost in costs.items()})
    report.add(**{f"many_{row}_cost_ratio": costs["many"] / costs["few"]})


ROWS: Mapping[str, Callable[[Report, Scale], None]] = {
    "jobs": _jobs,
    "tenants": _tenants,
    "models": _models,
    "calls": _calls,
    "workers": _workers,
    "apis": _apis,
}
"""Rows by name, in the order of their value."""
