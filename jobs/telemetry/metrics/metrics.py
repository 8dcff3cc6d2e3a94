"""Every metric of every process, once: ops/docs/metrics.md is written from this file.

Base units (seconds, bytes, ratios of 0 to 1), bounded labels. `model` is name@version; `stage` one
of STAGES; `class` a job class; `tenant` and `lane` go through a `Bounded`. A process has samples of
what it does; of what the whole system is, a keeper has them.
"""

from typing import TypeAlias, TypeVar

from prometheus_client import (
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from jobs.telemetry.metrics.deferred import Registry
from jobs.telemetry.metrics.label_limit import Bounded

Metric: TypeAlias = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)

STAGES = ("gateway", "preprocess", "queue", "batch", "engine", "postprocess")
"""Of a call or a launch, in their order. gateway: in the api, and on the way to the queue and back;
preprocess: tokenizing and the like; queue: in a lane; batch: from closing the launch until the
device has it; engine: on the device; postprocess: until the answer is sent or recorded."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody reads those samples

REGISTRY = Registry()

EDGES: dict[str, tuple[float, ...]] = {}
"""The upper ends of each histogram's buckets."""

COUNTERS: dict[str, Counter] = {}
"""By name: what a process counted for another one is added there."""

SECTIONS: dict[tuple[str, str], list[Metric]] = {}
"""By whose they are (a kind of process, or `every process`) and what they tell, in their order: as
ops/docs/metrics.md is parted."""

_CALL_S = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5,
    2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_STAGE_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SERVER_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)

TENANTS, LANES, UPSTREAMS, ROUTES = Bounded(100), Bounded(50), Bounded(50), Bounded(200)


def _section(whose: str, what: str = "") -> None:
    """What is defined from here on is theirs."""
    SECTIONS[whose, what] = []


def _counter(name: str, help: str, *labels: str) -> Counter:
    COUNTERS[name] = _noted(Counter(name, help, labels, registry=REGISTRY))
    return COUNTERS[name]


def _gauge(name: str, help: str, *labels: str) -> Gauge:
    return _noted(Gauge(name, help, labels, registry=REGISTRY))


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    EDGES[name] = buckets
    return _noted(Histogram(name, help, labels, registry=REGISTRY, buckets=buckets))


def _noted(metric: M) -> M:
    next(reversed(SECTIONS.values())).append(metric)
    return metric


_section("every process")

BUILD = _gauge(
    "millrace_build_info",
    "1, with the release that runs and what kind of process it is",
    "version",
    "process",
)
DATABASE_S = _histogram(
    "millrace_database_transaction_seconds", "Time a transaction had a connection", _SERVER_S
)
DATABASE_ERRORS = _counter(
    "millrace_database_errors_total", "Statements and connections that failed"
)
DATABASE_CONNECTIONS = _gauge(
    "millrace_database_connections", "Connections to the database, by state: used, idle", "state"
)
REDIS_S = _histogram(
    "millrace_redis_seconds", "Time of a Redis command or step, blocking ones left out", _SERVER_S
)
REDIS_ERRORS = _counter("millrace_redis_errors_total", "Redis commands that failed")

_section("api")

HTTP = _counter(
    "millrace_http_requests_total",
    "Requests answered, by route and status",
    "method",
    "route",
    "status",
)
HTTP_S = _histogram(
    "millrace_http_request_seconds",
    "Time to the end of an answer; calls are in millrace_call_seconds",
    _SERVER_S,
    "route",
)
CALLS = _counter(
    "millrace_calls_total",
    "Calls that ended: outcome is succeeded, cancelled (the client left) or the error's code",
    "model",
    "class",
    "outcome",
)
CALL_S = _histogram(
    "millrace_call_seconds", "Time of an answered call, all of it", _CALL_S, "model", "class"
)
CALL_STAGE_S = _histogram(
    "millrace_call_stage_seconds",
    "Where the time of answered calls went",
    _STAGE_S,
    "model",
    "stage",
)
CALL_TARGET = _counter(
    "millrace_call_target_total",
    "Calls by whether the model's target was met; a refusal or failure that is ours misses it, "
    "one that is the client's doesn't count",
    "model",
    "met",
)
TARGET_S = _gauge("millrace_model_target_seconds", "The latency that a model aims at", "model")
CALLS_WAITING = _gauge("millrace_calls_in_flight", "Calls of this process that have no answer yet")
ITEMS_SUBMITTED = _counter(
    "millrace_items_submitted_total", "Items of jobs that were taken in", "model"
)
JOBS_SUBMITTED = _counter(
    "millrace_jobs_submitted_total", "Jobs that were taken in", "model", "class"
)
LOOP_LAG_S = _gauge(
    "millrace_event_loop_lag_seconds",
    "How late the api's event loop is, over the last second at most",
)

_section("worker")

LAUNCHES = _counter(
    "millrace_launches_total", "Launches, by the reason that they left for", "model", "reason"
)
LAUNCH_ROWS = _histogram(
    "millrace_launch_rows", "Entries (calls and items) in a launch", _ROWS, "model"
)
LAUNCH_FILL = _histogram(
    "millrace_launch_fill_ratio", "Entries of a launch by what one may take", _TENTHS, "model"
)
LAUNCH_S = _histogram(
    "millrace_launch_seconds", "Time of a launch on the device", _STAGE_S, "model"
)
LAUNCH_PREDICTION = _histogram(
    "millrace_launch_prediction_ratio",
    "Actual by predicted time of a launch, either taken as 1 ms at least",
    _RATIOS,
    "model",
)
LAUNCH_STAGE_S = _histogram(
    "millrace_launch_stage_seconds",
    "Where the time of a launch's entries went, on average (without the gateway)",
    _STAGE_S,
    "model",
    "stage",
)
ENTRIES = _counter(
    "millrace_entries_total", "Entries launched, by kind: call or item", "model", "kind"
)
UNITS = _counter(
    "millrace_launch_units_total",
    "Size of what was launched, in the model's unit, without padding",
    "model",
)
PADDED_UNITS = _counter("millrace_launch_padded_units_total", "The same with padding", "model")
DEVICE_BUSY_S = _counter(
    "millrace_device_busy_seconds_total",
    "Time in which at least one launch was on the device",
    "device",
)
DEVICE_MEMORY = _gauge(
    "millrace_device_memory_bytes",
    "Memory of the device (kind: used, total); of a CPU, that of the process and of the machine",
    "device",
    "kind",
)
MODEL_BUSY_S = _counter(
    "millrace_model_device_seconds_total", "Device time of a model's launches", "model"
)
MODEL_MEMORY = _gauge(
    "millrace_model_memory_bytes", "Memory that a model was measured to take", "model"
)
MODEL_STATE = _gauge(
    "millrace_model_state", "1 for the state that a model is in here", "model", "state"
)
MODEL_LOADS = _counter(
    "millrace_model_loads_total", "Loads of models, by outcome: ready, failed", "model", "outcome"
)
MODEL_LOAD_S = _gauge(
    "millrace_model_load_seconds", "Time of the last load until it was warm", "model"
)
REPLICA_SLOTS = _gauge(
    "millrace_model_slots", "Launches that a model may have in flight here", "model"
)
LANES_WAITING = _gauge(
    "millrace_lanes_waiting",
    "Lanes with something in them at the last look, of calls and of this worker's items",
    "model",
)
LANE_ENTRIES = _counter(
    "millrace_lane_entries_total",
    "Entries launched, by lane (parameters and bucket)",
    "model",
    "lane",
)
LANE_WAIT_S = _counter(
    "millrace_lane_wait_seconds_total",
    "Time that those entries waited in their lane, together",
    "model",
    "lane",
)
LANE_LAUNCHES = _counter("millrace_lane_launches_total", "Launches, by lane", "model", "lane")
TENANT_ENTRIES = _counter(
    "millrace_tenant_entries_total", "Entries launched, by tenant", "tenant", "model", "kind"
)
TENANT_UNITS = _counter(
    "millrace_tenant_units_total", "Size of what was launched, by tenant", "tenant", "model"
)
TENANT_DEVICE_S = _counter(
    "millrace_tenant_device_seconds_total",
    "A tenant's share of the time on devices",
    "tenant",
    "model",
)
TENANT_WAIT_S = _counter(
    "millrace_tenant_wait_seconds_total",
    "Time that a tenant's entries waited in lanes, together",
    "tenant",
    "model",
)
ITEMS = _counter(
    "millrace_items_total", "Items with a final result, by outcome", "model", "outcome"
)
ITEM_ERRORS = _counter(
    "millrace_item_errors_total", "Failures of items, final or not, by code", "model", "code"
)
ITEM_RETRIES = _counter(
    "millrace_item_retries_total", "Failures after which an item is tried again", "model"
)
CLAIMS = _counter(
    "millrace_slices_claimed_total",
    "Slices taken in hand (a suspect one: alone)",
    "model",
    "suspect",
)
CLAIM_S = _histogram("millrace_claim_seconds", "Time of a claim, found something or not", _SERVER_S)
SETTLE_S = _histogram("millrace_settle_seconds", "Time of a settlement in the database", _SERVER_S)
LEASES_LOST = _counter("millrace_leases_lost_total", "Leases that had gone when their results came")
IN_HAND = _gauge("millrace_slices_in_hand", "Slices that this worker holds leases for", "model")
UPSTREAM = _counter(
    "millrace_upstream_requests_total",
    "Requests to servers that someone else runs, by outcome",
    "upstream",
    "outcome",
)
UPSTREAM_LIMIT = _gauge(
    "millrace_upstream_limit", "Requests at a time that such a server is sent now", "upstream"
)
UPSTREAM_OPEN = _gauge(
    "millrace_upstream_breaker_open", "1 while its circuit breaker is open", "upstream"
)

_section("keeper", "what it does")

KEEPER_RUNS = _counter(
    "millrace_keeper_runs_total", "Runs of a duty, by outcome: done, failed", "service", "outcome"
)
KEEPER_RUN_S = _histogram(
    "millrace_keeper_run_seconds", "Time of one run of a duty", _SERVER_S, "service"
)
REAPED = _counter(
    "millrace_leases_reaped_total", "Leases taken from workers that ended or fell silent"
)
WORKER_DEATHS = _counter(
    "millrace_worker_deaths_total",
    "Workers that ended without a goodbye, by how: killed, crashed, hung, silent",
    "how",
)
CALLS_RECOVERED = _counter(
    "millrace_calls_recovered_total", "Calls taken back from workers that died"
)
NUDGES = _counter("millrace_nudges_total", "Nudges sent through the broker", "pool")
WEBHOOKS = _counter(
    "millrace_webhook_attempts_total",
    "Tries of webhook deliveries, by outcome: delivered, failed, given_up",
    "outcome",
)
WEBHOOK_S = _histogram("millrace_webhook_seconds", "Time of one try of a delivery", _CALL_S)
TRANSFERS = _counter(
    "millrace_transfers_total",
    "Imports and exports that ended, by outcome: done, failed",
    "kind",
    "outcome",
)

_section("keeper", "how the whole system stands; where several keepers run, take the max")

JOBS = _gauge("millrace_jobs", "Jobs in the database, by state", "state")
JOBS_STUCK = _gauge(
    "millrace_jobs_stuck",
    "Open jobs with work to do of which nothing ended for ten minutes, "
    "while a worker of their model was ready",
    "model",
)
QUEUE_ITEMS = _gauge("millrace_queue_items", "Items of open jobs that have no result", "model")
QUEUE_CALLS = _gauge("millrace_queue_calls", "Calls that wait in lanes", "model")
QUEUE_AGE_S = _gauge(
    "millrace_queue_oldest_seconds", "Age of the oldest slice that could be claimed", "model"
)
DRAIN_S = _gauge(
    "millrace_predicted_drain_seconds",
    "Until the device work that waits for a model is done, by its workers as they are "
    "and the measured time of an item",
    "pool",
    "model",
)
WORKERS = _gauge("millrace_workers", "Workers that live, by state", "pool", "state")
READY = _gauge("millrace_model_ready_workers", "Workers in which a model is ready", "model")
WEBHOOKS_PENDING = _gauge("millrace_webhooks_pending", "Deliveries that wait for their next try")
WEBHOOK_AGE_S = _gauge("millrace_webhook_oldest_seconds", "Age of the oldest delivery that is due")
TRANSFERS_WAITING = _gauge(
    "millrace_transfers_waiting", "Imports and exports that aren't done", "kind"
)
TENANT_SHARE = _gauge(
    "millrace_tenant_share_ratio",
    "Device time that a tenant with work waiting had over the last minute, by its fair share of it",
    "tenant",
)
FAIRNESS = _gauge("millrace_fairness_jain", "Jain's index over those ratios: 1 is fair")
DATABASE_PROBE_S = _gauge(
    "millrace_database_probe_seconds", "Time of the smallest write that commits, at the last probe"
)
LOCK_WAIT_S = _gauge(
    "millrace_database_lock_wait_seconds",
    "Time that the longest of those who wait for a lock in the database has waited, at the last "
    "probe",
)
REDIS_PROBE_S = _gauge("millrace_redis_probe_seconds", "Time of a PING, at the last probe")
DATABASE_BYTES = _gauge("millrace_database_bytes", "Size of the database")


_FEW: dict[str, dict[Counter, tuple[tuple[str, ...], ...]]] = {
    "keeper": {
        WORKER_DEATHS: (("killed",), ("crashed",), ("hung",), ("silent",)),
        WEBHOOKS: (("delivered",), ("failed",), ("given_up",)),
        TRANSFERS: tuple(
            (kind, end) for kind in ("import", "export") for end in ("done", "failed")
        ),
    }
}


def keep_those_of(kind: str) -> None:
    """In a process of that kind: what has no labels would stand there as 0 in the others. What it
    counts by labels that are few stands at 0 from its start: of a counter that begins at 1 nobody
    sees it grow."""
    for counter, values in _FEW.get(kind, {}).items():
        for its in values:
            counter.labels(*its)
    for (whose, _), found in SECTIONS.items():
        for metric in found:
            if whose not in (kind, "every process") and not metric._labelnames:
                REGISTRY.unregister(metric)
