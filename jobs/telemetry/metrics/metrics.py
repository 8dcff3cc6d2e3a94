"""All metrics of all processes; ops/docs/reference/metrics.md is generated from this file.

Units are base units (seconds, bytes, ratios of 0 to 1) and labels are bounded: `model` is
name@version, `stage` one of STAGES, `class` a job class; `tenant`, `lane`, `upstream` and `route`
are capped by a `LabelLimit`. Each process exports its own work; a keeper exports the state of the
whole system.
"""

import re
from typing import TypeAlias, TypeVar

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from jobs.telemetry.metrics.deferred import Registry
from jobs.telemetry.metrics.labels import LabelLimit

Metric: TypeAlias = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)

STAGES = ("gateway", "preprocess", "queue", "batch", "engine", "postprocess")
"""Stages of a call or launch, in order. gateway: in the api, and on the way to the queue and back;
preprocess: tokenization and the like; queue: in a lane; batch: from flush until the device starts;
engine: on the device; postprocess: until the response is sent or the result recorded."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # unused: *_created

REGISTRY = Registry()

EDGES: dict[str, tuple[float, ...]] = {}
"""Upper bounds of the buckets, by histogram name."""

COUNTERS: dict[str, Counter] = {}
"""Counters by name: the counts of child processes are added to them."""

SECTIONS: dict[tuple[str, str], list[Metric]] = {}
"""Metrics by (kind of process or `every process`, title), in the order of the page."""

_CALL_S = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5,
    2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
_STAGE_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_TTFT_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80)
_ITL_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5)
_DECODE_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_SERVER_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)

TENANTS, LANES, UPSTREAMS, ROUTES = LabelLimit(100), LabelLimit(50), LabelLimit(50), LabelLimit(200)


def _section(process: str, title: str = "") -> None:
    """Starts a section: it gets all metrics defined after this."""
    SECTIONS[process, title] = []


def _counter(series: str, help: str) -> Counter:
    """Defines a counter; `series`: its name, and its labels in braces, as Prometheus shows them."""
    name, labels = _parse(series)
    COUNTERS[name] = _listed(Counter(name, help, labels, registry=REGISTRY))
    return COUNTERS[name]


def _gauge(series: str, help: str) -> Gauge:
    name, labels = _parse(series)
    return _listed(Gauge(name, help, labels, registry=REGISTRY))


def _histogram(series: str, help: str, buckets: tuple[float, ...]) -> Histogram:
    name, labels = _parse(series)
    EDGES[name] = buckets
    return _listed(Histogram(name, help, labels, registry=REGISTRY, buckets=buckets))


def _parse(series: str) -> tuple[str, list[str]]:
    name, *labels = re.findall(r"\w+", series)
    return name, labels


def _listed(metric: M) -> M:
    next(reversed(SECTIONS.values())).append(metric)
    return metric


_section("every process")

BUILD = _gauge(
    "millrace_build_info{version,process}", "1, labelled with the release and the kind of process."
)
DATABASE_S = _histogram(
    "millrace_database_transaction_seconds",
    "Time for which a transaction held a connection.",
    _SERVER_S,
)
DATABASE_ERRORS = _counter("millrace_database_errors_total", "Failed statements and connections.")
DATABASE_CONNECTIONS = _gauge(
    "millrace_database_connections{state}", "Database connections, by state: used, idle."
)
REDIS_S = _histogram(
    "millrace_redis_seconds",
    "Duration of Redis commands and pipelines, except blocking ones.",
    _SERVER_S,
)
REDIS_ERRORS = _counter("millrace_redis_errors_total", "Failed Redis commands.")

_section("api")

HTTP = _counter(
    "millrace_http_requests_total{method,route,status}", "HTTP requests, by route and status."
)
HTTP_S = _histogram(
    "millrace_http_request_seconds{route}",
    "Duration of HTTP requests, except calls (millrace_call_seconds).",
    _SERVER_S,
)
CALLS = _counter(
    "millrace_calls_total{model,class,outcome}",
    "Calls ended, by outcome: succeeded, cancelled (by the client) or an error code.",
)
CALL_S = _histogram("millrace_call_seconds{model,class}", "Latency of succeeded calls.", _CALL_S)
CALL_STAGE_S = _histogram(
    "millrace_call_stage_seconds{model,stage}",
    "Time that succeeded calls spent in each stage.",
    _STAGE_S,
)
CALL_TARGET = _counter(
    "millrace_call_target_total{model,met}",
    "Calls, by whether they met the model's latency target. Server-side refusals and "
    "failures miss it; client errors don't count.",
)
TARGET_S = _gauge(
    "millrace_model_target_seconds{model}",
    "Latency target of the model; of one that generates, until the first token.",
)
CALLS_WAITING = _gauge("millrace_calls_in_flight", "Unanswered calls in this process.")
ITEMS_SUBMITTED = _counter("millrace_items_submitted_total{model}", "Items submitted in jobs.")
JOBS_SUBMITTED = _counter("millrace_jobs_submitted_total{model,class}", "Jobs submitted.")
LOOP_LAG_S = _gauge("millrace_event_loop_lag_seconds", "Lag of loop or request, most in 1 s.")
BACKGROUND_FAILURES = _counter(
    "millrace_background_failures_total{task}", "Faults of the api's background tasks, by task."
)

_section("worker")

LAUNCHES = _counter("millrace_launches_total{model,reason}", "Batches launched, by flush reason.")
LAUNCH_ROWS = _histogram(
    "millrace_launch_rows{model}", "Entries (calls and items) per launch.", _ROWS
)
LAUNCH_FILL = _histogram(
    "millrace_launch_fill_ratio{model}", "Entries per launch, as a share of the maximum.", _TENTHS
)
LAUNCH_S = _histogram("millrace_launch_seconds{model}", "Device time per launch.", _STAGE_S)
LAUNCH_PREDICTION = _histogram(
    "millrace_launch_prediction_ratio{model}",
    "Actual over predicted launch time, each rounded up to 1 ms.",
    _RATIOS,
)
LAUNCH_STAGE_S = _histogram(
    "millrace_launch_stage_seconds{model,stage}",
    "Mean time of the entries of a launch in each stage (no gateway).",
    _STAGE_S,
)
ENTRIES = _counter("millrace_entries_total{model,kind}", "Entries launched, by kind: call, item.")
UNITS = _counter(
    "millrace_launch_units_total{model}",
    "Input size launched, in the model's unit, without padding.",
)
PADDED_UNITS = _counter(
    "millrace_launch_padded_units_total{model}",
    "Input size launched, in the model's unit, with padding.",
)
DEVICE_BUSY_S = _counter(
    "millrace_device_busy_seconds_total{device}", "Time with at least one launch on the device."
)
DEVICE_MEMORY = _gauge(
    "millrace_device_memory_bytes{device,kind}",
    "Device memory, by kind: used, total. CPU: of the process and of the machine.",
)
MODEL_BUSY_S = _counter(
    "millrace_model_device_seconds_total{model}", "Device time of the launches of a model."
)
MODEL_MEMORY = _gauge("millrace_model_memory_bytes{model}", "Measured memory use of a model.")
MODEL_STATE = _gauge(
    "millrace_model_state{model,state}", "1 for the current state of the model in this worker."
)
MODEL_LOADS = _counter(
    "millrace_model_loads_total{model,outcome}", "Model loads, by outcome: ready, failed."
)
MODEL_LOAD_S = _gauge(
    "millrace_model_load_seconds{model}", "Duration of the last load, including warm-up."
)
REPLICA_SLOTS = _gauge(
    "millrace_model_slots{model}",
    "Launches of the model that may run at the same time in this worker.",
)
LANES_WAITING = _gauge(
    "millrace_lanes_waiting{model}", "Non-empty lanes: those of calls, and of this worker's items."
)
LANE_ENTRIES = _counter(
    "millrace_lane_entries_total{model,lane}", "Entries launched, by lane (parameters and bucket)."
)
LANE_WAIT_S = _counter(
    "millrace_lane_wait_seconds_total{model,lane}", "Total wait of launched entries in their lane."
)
LANE_LAUNCHES = _counter("millrace_lane_launches_total{model,lane}", "Launches, by lane.")
TENANT_ENTRIES = _counter(
    "millrace_tenant_entries_total{tenant,model,kind}", "Entries launched, by tenant."
)
TENANT_UNITS = _counter(
    "millrace_tenant_units_total{tenant,model}",
    "Input size launched, in the model's unit, by tenant.",
)
TENANT_DEVICE_S = _counter(
    "millrace_tenant_device_seconds_total{tenant,model}", "Device time, by tenant."
)
TENANT_WAIT_S = _counter(
    "millrace_tenant_wait_seconds_total{tenant,model}",
    "Total wait of launched entries in lanes, by tenant.",
)
ITEMS = _counter("millrace_items_total{model,outcome}", "Items with a final result, by outcome.")
ITEM_ERRORS = _counter(
    "millrace_item_errors_total{model,code}", "Item failures, final or retried, by error code."
)
ITEM_RETRIES = _counter("millrace_item_retries_total{model}", "Item failures that are retried.")
CLAIMS = _counter(
    "millrace_slices_claimed_total{model,suspect}",
    "Slices claimed, by whether they are suspect: such a slice runs alone.",
)
CLAIM_S = _histogram(
    "millrace_claim_seconds", "Duration of a claim, including empty ones.", _SERVER_S
)
SETTLE_S = _histogram(
    "millrace_settle_seconds", "Duration of a settlement in the database.", _SERVER_S
)
LEASES_LOST = _counter(
    "millrace_leases_lost_total",
    "Leases that had been taken away before their results were recorded.",
)
IN_HAND = _gauge("millrace_slices_in_hand{model}", "Slices leased by this worker.")
UPSTREAM = _counter(
    "millrace_upstream_requests_total{upstream,outcome}",
    "Requests to upstream servers, by outcome.",
)
UPSTREAM_LIMIT = _gauge(
    "millrace_upstream_limit{upstream}", "Current concurrency limit for the upstream server."
)
UPSTREAM_OPEN = _gauge(
    "millrace_upstream_breaker_open{upstream}",
    "1 while the circuit breaker of the upstream server is open.",
)

_section("worker", "models that generate, with vLLM's names")

TTFT_S = _histogram(
    "millrace_time_to_first_token_seconds{model,kind}",
    "Time from a request's arrival in its lane to its first token, by kind: call, item.",
    _TTFT_S,
)
ITL_S = _histogram(
    "millrace_inter_token_latency_seconds{model,kind}", "Time between two tokens.", _ITL_S
)
REQUEST_QUEUE_S = _histogram(
    "millrace_request_queue_time_seconds{model,kind}", "Wait until the prefill began.", _TTFT_S
)
REQUEST_PREFILL_S = _histogram(
    "millrace_request_prefill_time_seconds{model,kind}",
    "Time from the start of the prefill to the first token.",
    _TTFT_S,
)
REQUEST_DECODE_S = _histogram(
    "millrace_request_decode_time_seconds{model,kind}",
    "Time from the first token to the last.",
    _DECODE_S,
)
REQUEST_SUCCESS = _counter(
    "millrace_request_success_total{model,finished_reason}", "Sequences that ended, by reason."
)
PROMPT_TOKENS = _counter("millrace_prompt_tokens_total{model}", "Tokens of prompts, cached or not.")
GENERATION_TOKENS = _counter("millrace_generation_tokens_total{model}", "Generated tokens.")
PREFIX_QUERIES = _counter(
    "millrace_prefix_cache_queries_total{model}", "Tokens of prompts looked up in the cache."
)
PREFIX_HITS = _counter(
    "millrace_prefix_cache_hits_total{model}", "Tokens of prompts found in the cache."
)
PREEMPTIONS = _counter(
    "millrace_num_preemptions_total{model,kind}", "Sequences that gave KV blocks to others."
)
RUNNING = _gauge("millrace_num_requests_running{model,kind}", "Sequences in the last step.")
WAITING = _gauge("millrace_num_requests_waiting{model,kind}", "Sequences that wait for blocks.")
KV_USAGE = _gauge("millrace_kv_cache_usage_perc{model}", "KV blocks in use, 0 to 1.")
KV_BLOCKS = _gauge("millrace_kv_cache_blocks{model}", "KV blocks of the model in this worker.")
TENANT_KV_BLOCKS = _gauge(
    "millrace_tenant_kv_cache_blocks{tenant,model}", "KV blocks in use, by tenant."
)
STEP_S = _histogram(
    "millrace_generation_step_seconds{model,prefill}",
    "Duration of a step, by whether it computed tokens of prompts.",
    _ITL_S,
)
GENERATION_TARGET = _counter(
    "millrace_generation_target_total{model,target,met}",
    "Calls, by whether they met the model's target: ttft (time to the first token), itl (mean "
    "time between tokens).",
)

_section("keeper", "its own work")

KEEPER_RUNS = _counter(
    "millrace_keeper_runs_total{service,outcome}",
    "Runs of keeper services, by outcome: done, failed.",
)
KEEPER_RUN_S = _histogram(
    "millrace_keeper_run_seconds{service}", "Duration of a run of a keeper service.", _SERVER_S
)
REAPED = _counter(
    "millrace_leases_reaped_total", "Leases reaped from workers that ended or stopped responding."
)
WORKER_DEATHS = _counter(
    "millrace_worker_deaths_total{how}",
    "Unclean ends of workers, by cause: killed, crashed, hung, silent, sick.",
)
CALLS_RECOVERED = _counter("millrace_calls_recovered_total", "Calls recovered from dead workers.")
NUDGES = _counter("millrace_nudges_total{pool}", "Nudges sent through the broker.")
WEBHOOKS = _counter(
    "millrace_webhook_attempts_total{outcome}",
    "Webhook delivery attempts, by outcome: delivered, failed, given_up.",
)
WEBHOOK_S = _histogram(
    "millrace_webhook_seconds", "Duration of a webhook delivery attempt.", _CALL_S
)
TRANSFERS = _counter(
    "millrace_transfers_total{kind,outcome}", "Imports and exports ended, by outcome: done, failed."
)

_section("keeper", "state of the whole system; with several keepers, take the max")

JOBS = _gauge("millrace_jobs{state}", "Jobs in the database, by state.")
JOBS_STUCK = _gauge(
    "millrace_jobs_stuck{model}",
    "Open jobs with runnable work and no progress for ten minutes although a worker was ready.",
)
QUEUE_ITEMS = _gauge("millrace_queue_items{model}", "Items without a result in open jobs.")
QUEUE_CALLS = _gauge("millrace_queue_calls{model}", "Calls waiting in lanes.")
QUEUE_AGE_S = _gauge("millrace_queue_oldest_seconds{model}", "Age of the oldest claimable slice.")
DRAIN_S = _gauge(
    "millrace_predicted_drain_seconds{pool,model}",
    "Predicted time until the backlog of the model is done, by its current workers and "
    "measured item times.",
)
WORKERS = _gauge("millrace_workers{pool,state}", "Live workers, and quarantined ones, by state.")
READY = _gauge("millrace_model_ready_workers{model}", "Workers in which the model is ready.")
WEBHOOKS_PENDING = _gauge(
    "millrace_webhooks_pending", "Webhook deliveries waiting for their next attempt."
)
WEBHOOK_AGE_S = _gauge(
    "millrace_webhook_oldest_seconds", "Age of the oldest webhook delivery that is due."
)
TRANSFERS_WAITING = _gauge("millrace_transfers_waiting{kind}", "Imports and exports not yet done.")
TENANT_SHARE = _gauge(
    "millrace_tenant_share_ratio{tenant}",
    "Device time of a tenant with a backlog over the last minute, relative to its fair share.",
)
FAIRNESS = _gauge(
    "millrace_fairness_jain", "Jain's fairness index of millrace_tenant_share_ratio: 1 is fair."
)
DATABASE_PROBE_S = _gauge(
    "millrace_database_probe_seconds", "Duration of a minimal committed write, at the last probe."
)
LOCK_WAIT_S = _gauge(
    "millrace_database_lock_wait_seconds",
    "Longest current wait for a database lock, at the last probe.",
)
REDIS_PROBE_S = _gauge("millrace_redis_probe_seconds", "Duration of a PING, at the last probe.")
DATABASE_BYTES = _gauge("millrace_database_bytes", "Size of the database.")


_INITIALIZED: dict[str, dict[Counter, tuple[tuple[str, ...], ...]]] = {
    "keeper": {
        WORKER_DEATHS: (("killed",), ("crashed",), ("hung",), ("silent",), ("sick",)),
        WEBHOOKS: (("delivered",), ("failed",), ("given_up",)),
        TRANSFERS: tuple(
            (kind, end) for kind in ("import", "export") for end in ("done", "failed")
        ),
    }
}
"""Label values exported as 0 from the start: no rate sees a counter appear with the value 1."""


def keep_for_process(kind: str) -> None:
    """Unregisters the metrics without labels of other kinds of processes, which would export 0."""
    for counter, label_values in _INITIALIZED.get(kind, {}).items():
        for values in label_values:
            counter.labels(*values)
    for (process, _), metrics in SECTIONS.items():
        for metric in metrics:
            if process not in (kind, "every process") and not metric._labelnames:
                REGISTRY.unregister(metric)
