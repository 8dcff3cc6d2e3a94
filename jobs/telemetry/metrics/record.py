"""What happens, as metrics: one call for each kind of event, so that code which does something says
what it did and the names of metrics stand here.

Each function only notes it (`noting`), and is nothing but a test where metrics are switched off.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import ParamSpec

from prometheus_client import Counter, Histogram

from jobs import clock
from jobs.telemetry.metrics import deferred, metrics
from jobs.telemetry.metrics.metrics import LANES, ROUTES, TENANTS, UPSTREAMS
from jobs.version import VERSION

P = ParamSpec("P")

_MOST_LANE = 100  # characters of a lane's name, which has a client's parameters in it
_BRIEF_S = 0.001  # nobody has to predict what is over sooner

_on = True


def switch(on: bool) -> None:
    """Whether this process keeps metrics at all."""
    global _on
    _on = on


def is_on() -> bool:
    return _on


def noted(act: Callable[P, None]) -> Callable[P, None]:
    """For a function that counts something: it will be called in a moment, unless metrics are
    switched off."""

    @wraps(act)
    def later(*args: P.args, **kwargs: P.kwargs) -> None:
        if _on:
            deferred.note(act, *args, **kwargs)

    return later


# -- every process


def begin(kind: str, on: bool) -> None:
    """This process is of that kind, and keeps metrics or not."""
    switch(on)
    if on:
        metrics.keep_those_of(kind)
        metrics.BUILD.labels(VERSION, kind).set(1)
        deferred.start()


@noted
def transaction(seconds: float) -> None:
    metrics.DATABASE_S.observe(seconds)


@noted
def database_error() -> None:
    metrics.DATABASE_ERRORS.inc()


@noted
def connections(used: int, idle: int) -> None:
    metrics.DATABASE_CONNECTIONS.labels("used").set(used)
    metrics.DATABASE_CONNECTIONS.labels("idle").set(idle)


@noted
def redis_answered(seconds: float) -> None:
    metrics.REDIS_S.observe(seconds)


@noted
def redis_error() -> None:
    metrics.REDIS_ERRORS.inc()


# -- api


@noted
def request(method: str, route: str, status: int, seconds: float | None) -> None:
    """One that was answered. seconds: until the end of its answer; None: of a call, which counts
    elsewhere, or of a stream that has no end."""
    route = ROUTES(route)
    _requests(method, route, status).inc()
    if seconds is not None:
        metrics.HTTP_S.labels(route).observe(seconds)


@lru_cache(4096)
def _requests(method: str, route: str, status: int) -> Counter:
    return metrics.HTTP.labels(method, route, str(status))


@noted
def call(model: str, job_class: str, outcome: str, met: bool | None) -> None:
    """One that ended. met: whether its model's target was; None: it has nothing to do with it."""
    _ended(model, job_class, outcome).inc()
    if met is not None:
        _target(model, met).inc()


@noted
def call_answered(model: str, job_class: str, seconds: float, stages: Mapping[str, float]) -> None:
    """stages: seconds; what is missing of the whole is the gateway's."""
    whole, parts = _answered(model, job_class)
    whole.observe(seconds)
    parts["gateway"].observe(max(0.0, seconds - sum(stages.values())))
    for stage, part in stages.items():
        parts[stage].observe(part)


@lru_cache(4096)
def _ended(model: str, job_class: str, outcome: str) -> Counter:
    return metrics.CALLS.labels(model, job_class, outcome)


@lru_cache(1024)
def _target(model: str, met: bool) -> Counter:
    return metrics.CALL_TARGET.labels(model, "true" if met else "false")


@lru_cache(1024)
def _answered(model: str, job_class: str) -> tuple[Histogram, dict[str, Histogram]]:
    stages = {stage: metrics.CALL_STAGE_S.labels(model, stage) for stage in metrics.STAGES}
    return metrics.CALL_S.labels(model, job_class), stages


@noted
def job_submitted(model: str, job_class: str, items: int) -> None:
    metrics.JOBS_SUBMITTED.labels(model, job_class).inc()
    metrics.ITEMS_SUBMITTED.labels(model).inc(items)


# -- slices, items and what runs them


@noted
def claim(seconds: float, model: str, slices: int, suspect: bool) -> None:
    """slices: 0 where there was nothing; then of no model."""
    metrics.CLAIM_S.observe(seconds)
    if slices:
        metrics.CLAIMS.labels(model, "true" if suspect else "false").inc(slices)


@noted
def settlement(seconds: float, lost: int) -> None:
    """lost: leases that had gone."""
    metrics.SETTLE_S.observe(seconds)
    metrics.LEASES_LOST.inc(lost)


@noted
def items_ended(model: str, outcome: str, count: int) -> None:
    metrics.ITEMS.labels(model, outcome).inc(count)


@noted
def item_errors(model: str, code: str, count: int) -> None:
    metrics.ITEM_ERRORS.labels(model, code).inc(count)


@noted
def item_retries(model: str, count: int) -> None:
    metrics.ITEM_RETRIES.labels(model).inc(count)


@noted
def postprocessed(model: str, seconds: float) -> None:
    """From the end of a launch until its calls are answered, or a slice of its items recorded."""
    _stages(model)["postprocess"].observe(seconds)


@noted
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
    """entries: by kind; stages: seconds, on average over them."""  # fmt: skip
    _launches(model, reason).inc()
    rows, full, took, prediction, counted, padded, busy = _launched(model)
    rows.observe(sum(entries.values()))
    full.observe(fill)
    took.observe(seconds)
    if predicted_s:
        prediction.observe(max(seconds, _BRIEF_S) / max(predicted_s, _BRIEF_S))
    counted.inc(units)
    padded.inc(padded_units)
    busy.inc(device_s)
    for kind, count in entries.items():
        if count:
            _entries(model, kind).inc(count)
    of = _stages(model)
    for stage, part in stages.items():
        of[stage].observe(max(0.0, part))


@noted
def launch_of_lane(model: str, lane: str, count: int, waited_s: float) -> None:
    """A part of a launch: so many entries, which waited so long together."""
    launches, entries, waited = _lane(model, LANES(lane[:_MOST_LANE]))
    launches.inc()
    entries.inc(count)
    waited.inc(waited_s)


@noted
def launch_of_tenant(
    model: str, tenant: str, kind: str, count: int, units: int, device_s: float, waited_s: float
) -> None:
    """A part of a launch: so many entries of one kind, and what they took together."""
    entries, sizes, device, waited = _tenant(model, TENANTS(tenant), kind)
    entries.inc(count)
    sizes.inc(units)
    device.inc(device_s)
    waited.inc(waited_s)


# Finding a series by its labels takes longer than counting: those of launches are kept.


@lru_cache(4096)
def _launches(model: str, reason: str) -> Counter:
    return metrics.LAUNCHES.labels(model, reason)


@lru_cache(4096)
def _entries(model: str, kind: str) -> Counter:
    return metrics.ENTRIES.labels(model, kind)


@lru_cache(4096)
def _lane(model: str, lane: str) -> tuple[Counter, Counter, Counter]:
    found = metrics.LANE_LAUNCHES, metrics.LANE_ENTRIES, metrics.LANE_WAIT_S
    launches, entries, waited = (metric.labels(model, lane) for metric in found)
    return launches, entries, waited


@lru_cache(16384)
def _tenant(model: str, tenant: str, kind: str) -> tuple[Counter, Counter, Counter, Counter]:
    found = metrics.TENANT_UNITS, metrics.TENANT_DEVICE_S, metrics.TENANT_WAIT_S
    units, device, waited = (metric.labels(tenant, model) for metric in found)
    return metrics.TENANT_ENTRIES.labels(tenant, model, kind), units, device, waited


@lru_cache(1024)
def _launched(model: str) -> tuple[
    Histogram, Histogram, Histogram, Histogram,
    Counter, Counter, Counter,
]:  # fmt: skip
    return (
        metrics.LAUNCH_ROWS.labels(model),
        metrics.LAUNCH_FILL.labels(model),
        metrics.LAUNCH_S.labels(model),
        metrics.LAUNCH_PREDICTION.labels(model),
        metrics.UNITS.labels(model),
        metrics.PADDED_UNITS.labels(model),
        metrics.MODEL_BUSY_S.labels(model),
    )


@lru_cache(1024)
def _stages(model: str) -> dict[str, Histogram]:
    return {stage: metrics.LAUNCH_STAGE_S.labels(model, stage) for stage in metrics.STAGES[1:]}


@noted
def device_busy(device: str, seconds: float) -> None:
    metrics.DEVICE_BUSY_S.labels(device).inc(seconds)


@noted
def model_loaded(model: str, outcome: str, seconds: float) -> None:
    metrics.MODEL_LOADS.labels(model, outcome).inc()
    if outcome == "ready":
        metrics.MODEL_LOAD_S.labels(model).set(seconds)


@noted
def upstream(name: str, outcome: str, limit: int, closed: bool) -> None:
    """One request to it has ended; how many it may be sent at a time, and whether it is let be."""
    name = UPSTREAMS(name)
    metrics.UPSTREAM.labels(name, outcome).inc()
    metrics.UPSTREAM_LIMIT.labels(name).set(limit)
    metrics.UPSTREAM_OPEN.labels(name).set(closed)


# -- keeper


@contextmanager
def duty(name: str) -> Iterator[None]:
    """One run of it; it fails by raising."""
    since_s, outcome = clock.monotonic(), "failed"
    try:
        yield
        outcome = "done"
    finally:
        if _on:
            metrics.KEEPER_RUNS.labels(name, outcome).inc()
            metrics.KEEPER_RUN_S.labels(name).observe(clock.monotonic() - since_s)


@noted
def reaped(leases: int) -> None:
    metrics.REAPED.inc(leases)


@noted
def worker_died(how: str, count: int = 1) -> None:
    metrics.WORKER_DEATHS.labels(how).inc(count)


@noted
def calls_recovered(count: int) -> None:
    metrics.CALLS_RECOVERED.inc(count)


@noted
def nudged(pool: str, count: int) -> None:
    metrics.NUDGES.labels(pool).inc(count)


@noted
def webhook_tried(outcome: str, seconds: float) -> None:
    metrics.WEBHOOKS.labels(outcome).inc()
    metrics.WEBHOOK_S.observe(seconds)


@noted
def transferred(kind: str, outcome: str) -> None:
    metrics.TRANSFERS.labels(kind, outcome).inc()
