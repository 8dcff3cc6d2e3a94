"""Events that are counted in metrics: one function per kind of event.

Each function only queues the event (`deferred`), and does nothing while metrics are off.
"""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, wraps
from importlib.metadata import version
from operator import sub
from typing import Any, ParamSpec

from prometheus_client import Counter, Histogram

from jobs import clock
from jobs.telemetry.metrics import deferred, metrics
from jobs.telemetry.metrics.metrics import LANES, ROUTES, TENANTS, UPSTREAMS

P = ParamSpec("P")

TIMING_STAGES = {
    "preprocess_ms": "preprocess",
    "queue_ms": "queue",
    "batch_ms": "batch",
    "engine_ms": "engine",
    "post_ms": "postprocess",
}
"""Stages by their keys in a call's timing; the rest of its time is the gateway's."""

_MAX_LANE = 100  # characters of a lane's name, which contains a client's parameters
_BRIEF_S = 0.001  # shorter launches are rounded up: their prediction doesn't matter

_on = True


def set_enabled(on: bool) -> None:
    """Switches the metrics of this process on or off."""
    global _on
    _on = on


def is_enabled() -> bool:
    """Returns True if metrics are on."""
    return _on


def run_later(act: Callable[P, None]) -> Callable[P, None]:
    """Decorator of a function that counts an event: defers its call, or drops it if metrics are
    off."""

    @wraps(act)
    def later(*args: P.args, **kwargs: P.kwargs) -> None:
        """Defers the call."""
        if _on:
            deferred.defer(act, *args, **kwargs)

    return later


# Looking up a series by its labels takes longer than counting: frequent ones are cached.


@lru_cache(32768)
def _counter(metric: Counter, *labels: str) -> Counter:
    return metric.labels(*labels)


@lru_cache(8192)
def _histogram(metric: Histogram, *labels: str) -> Histogram:
    return metric.labels(*labels)


def _observe_all(histogram: Histogram, values: list[float]) -> None:
    """Observes many values at once: a fifth of the time that one by one takes."""
    edges, buckets = histogram._upper_bounds, histogram._buckets
    histogram._sum.inc(sum(values))
    for place, count in Tally(bisect_left(edges, value) for value in values).items():
        buckets[place].inc(count)


# -- every process


def start(kind: str, on: bool) -> None:
    """Starts the metrics of a process; `kind`: api, worker, keeper or scaler."""
    set_enabled(on)
    if on:
        metrics.keep_for_process(kind)
        metrics.BUILD.labels(version("millrace"), kind).set(1)
        deferred.start()


@run_later
def transaction(seconds: float) -> None:
    """Counts a database transaction; `seconds`: it held a connection."""
    metrics.DATABASE_S.observe(seconds)


@run_later
def database_error() -> None:
    """Counts a failed statement or connection."""
    metrics.DATABASE_ERRORS.inc()


@run_later
def connections(used: int, idle: int) -> None:
    """Sets the number of database connections."""
    metrics.DATABASE_CONNECTIONS.labels("used").set(used)
    metrics.DATABASE_CONNECTIONS.labels("idle").set(idle)


def redis_answered(seconds: float) -> None:
    """Counts a Redis command or pipeline."""
    if _on:
        deferred.defer_row(_count_redis, seconds)


def _count_redis(rows: list[tuple[float]]) -> None:
    _observe_all(metrics.REDIS_S, [seconds for (seconds,) in rows])


@run_later
def redis_error() -> None:
    """Counts a failed Redis command."""
    metrics.REDIS_ERRORS.inc()


# -- api


@run_later
def background_failure(task: str) -> None:
    """Counts a fault of a background task, or of a thread ("thread")."""
    metrics.BACKGROUND_FAILURES.labels(task).inc()


def request(method: str, route: str, status: int, seconds: float | None) -> None:
    """Counts an HTTP request.

    seconds: until the end of the response; None for calls, which have a histogram of their own,
    and for endless streams.
    """
    if not _on:
        return
    deferred.defer_row(_count_requests, method, route, status)
    if seconds is not None:
        _time_request(route, seconds)


def _count_requests(rows: list[tuple[str, str, int]]) -> None:
    for (method, route, status), count in Tally(rows).items():
        _counter(metrics.HTTP, method, ROUTES(route), str(status)).inc(count)


@run_later
def _time_request(route: str, seconds: float) -> None:
    metrics.HTTP_S.labels(ROUTES(route)).observe(seconds)


def call(model: str, job_class: str, outcome: str, met: bool | None) -> None:
    """Counts a call; `met`: its model's latency target was met, None if that doesn't apply."""
    if _on:
        deferred.defer_row(_count_calls, model, job_class, outcome, met)


def _count_calls(rows: list[tuple[str, str, str, bool | None]]) -> None:
    for (model, job_class, outcome, met), count in Tally(rows).items():
        _counter(metrics.CALLS, model, job_class, outcome).inc(count)
        if met is not None:
            _counter(metrics.CALL_TARGET, model, "true" if met else "false").inc(count)


def call_answered(
    model: str, job_class: str, met: bool, seconds: float, timing: Mapping[str, Any]
) -> None:
    """Counts a succeeded call. timing: ms by the keys of TIMING_STAGES, the rest is the
    gateway's."""
    if _on:
        deferred.defer_row(_count_answered, model, job_class, met, seconds, timing)


def _count_answered(rows: list[tuple[str, str, bool, float, Mapping[str, Any]]]) -> None:
    calls: dict[tuple[str, str], list[tuple[float, Mapping[str, Any]]]] = {}
    for model, job_class, _, seconds, timing in rows:
        calls.setdefault((model, job_class), []).append((seconds, timing))
    _count_calls([(model, job_class, "succeeded", met) for model, job_class, met, _, _ in rows])
    for (model, job_class), its in calls.items():
        gateway_s = [seconds for seconds, _ in its]
        _observe_all(_histogram(metrics.CALL_S, model, job_class), gateway_s)
        for key, stage in TIMING_STAGES.items():
            took_s = [timing.get(key, 0.0) / 1000 for _, timing in its]
            _observe_all(_histogram(metrics.CALL_STAGE_S, model, stage), took_s)
            gateway_s = list(map(sub, gateway_s, took_s))
        rest_s = [max(0.0, seconds) for seconds in gateway_s]
        _observe_all(_histogram(metrics.CALL_STAGE_S, model, "gateway"), rest_s)


@run_later
def job_submitted(model: str, job_class: str, items: int) -> None:
    """Counts a job and its items."""
    metrics.JOBS_SUBMITTED.labels(model, job_class).inc()
    metrics.ITEMS_SUBMITTED.labels(model).inc(items)


# -- slices, items and what runs them


@run_later
def claim(seconds: float, model: str, slices: int, suspect: bool) -> None:
    """Counts a claim of slices; 0: there were none, of no model."""
    metrics.CLAIM_S.observe(seconds)
    if slices:
        metrics.CLAIMS.labels(model, "true" if suspect else "false").inc(slices)


@run_later
def settlement(seconds: float, lost: int) -> None:
    """Counts a settlement; `lost`: leases that had been taken away."""
    metrics.SETTLE_S.observe(seconds)
    metrics.LEASES_LOST.inc(lost)


@run_later
def items_ended(model: str, outcome: str, count: int) -> None:
    """Counts items with a final result."""
    metrics.ITEMS.labels(model, outcome).inc(count)


@run_later
def item_errors(model: str, code: str, count: int) -> None:
    """Counts failures of items."""
    metrics.ITEM_ERRORS.labels(model, code).inc(count)


@run_later
def item_retries(model: str, count: int) -> None:
    """Counts failures that are retried."""
    metrics.ITEM_RETRIES.labels(model).inc(count)


@run_later
def postprocessed(model: str, seconds: list[float]) -> None:
    """Counts the times from the end of a launch until its results are sent or recorded, s."""
    _observe_all(_histogram(metrics.LAUNCH_STAGE_S, model, "postprocess"), seconds)


@run_later
def launch(
    model: str,
    reason: str,
    entries: Mapping[str, int],
    fill: float,
    seconds: float,
    predicted_s: float,
    device_s: float,
    units: int,
    padded_units: int,
    stages: Mapping[str, float],
) -> None:
    """Counts a launch; `entries`: by kind; `stages`: mean seconds of its entries."""
    _counter(metrics.LAUNCHES, model, reason).inc()
    _histogram(metrics.LAUNCH_ROWS, model).observe(sum(entries.values()))
    _histogram(metrics.LAUNCH_FILL, model).observe(fill)
    _histogram(metrics.LAUNCH_S, model).observe(seconds)
    if predicted_s:
        ratio = max(seconds, _BRIEF_S) / max(predicted_s, _BRIEF_S)
        _histogram(metrics.LAUNCH_PREDICTION, model).observe(ratio)
    _counter(metrics.UNITS, model).inc(units)
    _counter(metrics.PADDED_UNITS, model).inc(padded_units)
    _counter(metrics.MODEL_BUSY_S, model).inc(device_s)
    for kind, count in entries.items():
        if count:
            _counter(metrics.ENTRIES, model, kind).inc(count)
    for stage, part in stages.items():
        _histogram(metrics.LAUNCH_STAGE_S, model, stage).observe(max(0.0, part))


@run_later
def lane_launch(model: str, lane: str, count: int, waited_s: float) -> None:
    """Counts the entries of one lane in a launch; `waited_s`: their total wait."""
    lane = LANES(lane[:_MAX_LANE])
    _counter(metrics.LANE_LAUNCHES, model, lane).inc()
    _counter(metrics.LANE_ENTRIES, model, lane).inc(count)
    _counter(metrics.LANE_WAIT_S, model, lane).inc(waited_s)


@run_later
def tenant_launch(
    model: str, tenant: str, kind: str, count: int, units: int, device_s: float, waited_s: float
) -> None:
    """Counts the entries of one tenant and kind in a launch, with totals over them."""
    tenant = TENANTS(tenant)
    _counter(metrics.TENANT_ENTRIES, tenant, model, kind).inc(count)
    _counter(metrics.TENANT_UNITS, tenant, model).inc(units)
    _counter(metrics.TENANT_DEVICE_S, tenant, model).inc(device_s)
    _counter(metrics.TENANT_WAIT_S, tenant, model).inc(waited_s)


@run_later
def device_busy(device: str, seconds: float) -> None:
    """Counts busy time of a device."""
    metrics.DEVICE_BUSY_S.labels(device).inc(seconds)


@run_later
def model_loaded(model: str, outcome: str, seconds: float) -> None:
    """Counts a load of a model; `outcome`: ready or failed."""
    metrics.MODEL_LOADS.labels(model, outcome).inc()
    if outcome == "ready":
        metrics.MODEL_LOAD_S.labels(model).set(seconds)


@run_later
def upstream(name: str, outcome: str, limit: int, breaker_open: bool) -> None:
    """Counts a request to an upstream; `limit`: its concurrency limit."""
    name = UPSTREAMS(name)
    metrics.UPSTREAM.labels(name, outcome).inc()
    metrics.UPSTREAM_LIMIT.labels(name).set(limit)
    metrics.UPSTREAM_OPEN.labels(name).set(breaker_open)


# -- keeper


@contextmanager
def keeper_run(name: str) -> Iterator[None]:
    """Counts and times a run of a keeper service; it failed if the block raises."""
    since_s, outcome = clock.monotonic(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        if _on:
            metrics.KEEPER_RUNS.labels(name, outcome).inc()
            metrics.KEEPER_RUN_S.labels(name).observe(clock.monotonic() - since_s)


@run_later
def reaped(leases: int) -> None:
    """Counts reaped leases."""
    metrics.REAPED.inc(leases)


@run_later
def worker_died(how: str, count: int = 1) -> None:
    """Counts unclean ends of workers."""
    metrics.WORKER_DEATHS.labels(how).inc(count)


@run_later
def calls_recovered(count: int) -> None:
    """Counts calls recovered from dead workers."""
    metrics.CALLS_RECOVERED.inc(count)


@run_later
def nudged(pool: str, count: int) -> None:
    """Counts nudges sent."""
    metrics.NUDGES.labels(pool).inc(count)


@run_later
def webhook_tried(outcome: str, seconds: float) -> None:
    """Counts a delivery attempt."""
    metrics.WEBHOOKS.labels(outcome).inc()
    metrics.WEBHOOK_S.observe(seconds)


@run_later
def transferred(kind: str, outcome: str) -> None:
    """Counts an import or export that ended."""
    metrics.TRANSFERS.labels(kind, outcome).inc()
