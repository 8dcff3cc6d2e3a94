"""Panels of the dashboards. A test holds names and labels against jobs/telemetry/metrics."""

from ops.grafana.panels import Dashboard, Panel

_RATE = "[$__rate_interval]"
_MODEL = 'model=~"$model"'


def _quantiles(metric: str, by: str, more: str = "") -> list[tuple[str, str]]:
    """Returns p50, p95 and p99 of a histogram of models, by a label."""
    return [
        (
            f"histogram_quantile({q}, sum by (le, {by}) "
            f"(rate({metric}_bucket{{{_MODEL}{more}}}{_RATE})))",
            f"{{{{{by}}}}} p{q * 100:g}",
        )
        for q in (0.5, 0.95, 0.99)
    ]


def _rate(metric: str, by: str, matching: str = _MODEL) -> str:
    return f"sum by ({by}) (rate({metric}{{{matching}}}{_RATE}))"


def _mean(metric: str, by: str, matching: str = _MODEL) -> str:
    return f"{_rate(f'{metric}_sum', by, matching)} / {_rate(f'{metric}_count', by, matching)}"


OVERVIEW = Dashboard(
    "overview",
    "overview",
    ("model",),
    [
        Panel("Calls", "reqps", [(_rate("millrace_calls_total", "outcome"), "{{outcome}}")],
              "Calls ended, by outcome: succeeded, or an error code."),
        Panel("Items", "ops", [(_rate("millrace_items_total", "outcome"), "{{outcome}}")],
              "Items with a final result."),
        Panel("Burn rate of the latency target", "none",
              [("millrace:call_target:burn1h{" + _MODEL + "}", "{{model}} 1 h"),
               ("millrace:call_target:burn5m{" + _MODEL + "}", "{{model}} 5 min")],
              "Error budget burn rate; 1 uses it up exactly.",
              red=14.4),
        Panel("p99 of calls", "s",
              [("histogram_quantile(0.99, sum by (le, model) "
                f"(rate(millrace_call_seconds_bucket{{{_MODEL}}}{_RATE})))", "{{model}}"),
               ("max by (model) (millrace_model_target_seconds{" + _MODEL + "})",
                "{{model}} target")],
              "With the model's latency target."),
        Panel("Predicted drain time", "s",
              [("millrace:predicted_drain:seconds{" + _MODEL + "}", "{{pool}} {{model}}")],
              "With the current workers. Pools scale by it."),
        Panel("Oldest waiting slice", "s",
              [("max by (model) (millrace_queue_oldest_seconds{" + _MODEL + "})", "{{model}}")],
              "Claimable slices only."),
        Panel("Entries per launch", "none",
              [(_mean("millrace_launch_rows", "model"), "{{model}}")],
              "Mean of calls and items. Small launches waste the device."),
        Panel("Devices busy", "percentunit",
              [(f"rate(millrace_device_busy_seconds_total{_RATE})", "{{instance}} {{device}}")],
              "Share of the time in which a launch was on the device.", most=1),
        Panel("Jobs", "none", [("max by (state) (millrace_jobs)", "{{state}}"),
                               ("sum(max by (model) (millrace_jobs_stuck))", "stuck")],
              "Jobs in the database, by state."),
    ],
)  # fmt: skip

MODELS = Dashboard(
    "models",
    "models",
    ("model",),
    [
        Panel("Call latency", "s", _quantiles("millrace_call_seconds", "model"), "Total latency."),
        Panel("Calls that missed the target", "percentunit",
              [("millrace:call_target_missed:ratio_rate5m{" + _MODEL + "}", "{{model}}"),
               ("1 - millrace:call_target:objective{" + _MODEL + "}", "{{model}} may")],
              "Server-side refusals and failures miss it."),
        Panel("Call latency by stage", "s",
              [(_mean("millrace_call_stage_seconds", "stage"), "{{stage}}")],
              "Means by stage: gateway, preprocess, queue, batch, engine, postprocess."),
        Panel("Device time per launch", "s",
              _quantiles("millrace_launch_seconds", "model"),
              "Engine only."),
        Panel("Launches by flush reason", "ops",
              [(_rate("millrace_launches_total", "reason"), "{{reason}}")],
              "Reasons are explained in metrics.md."),
        Panel("Actual over predicted time", "none",
              _quantiles("millrace_launch_prediction_ratio", "model"),
              "1: as predicted. Above 1.5 admission accepts calls that will be late.", red=1.5),
        Panel("Launch fill", "percentunit",
              [(_mean("millrace_launch_fill_ratio", "model"), "{{model}}")],
              "Entries as a share of the maximum.", most=1),
        Panel("Padding", "percentunit",
              [(f"1 - {_rate('millrace_launch_units_total', 'model')} / "
                f"{_rate('millrace_launch_padded_units_total', 'model')}", "{{model}}")],
              "Padding as a share of the launched size.", most=1),
        Panel("Non-empty lanes", "none",
              [("sum by (model) (millrace_lanes_waiting{" + _MODEL + "})", "{{model}}")],
              "Many short lanes make small launches."),
        Panel("Wait in lanes", "s",
              [(f"topk(5, {_rate('millrace_lane_wait_seconds_total', 'model, lane')} / "
                f"{_rate('millrace_lane_entries_total', 'model, lane')})", "{{model}} {{lane}}")],
              "Mean per entry, five slowest lanes."),
        Panel("Failures of items", "ops",
              [(_rate("millrace_item_errors_total", "code"), "{{code}}"),
               (_rate("millrace_item_retries_total", "model"), "{{model}} retried")],
              "By error code, final or retried."),
        Panel("Ready workers", "none",
              [("max by (model) (millrace_model_ready_workers{" + _MODEL + "})", "{{model}}"),
               ("sum by (model, state) (millrace_model_state{" + _MODEL + "})",
                "{{model}} {{state}}")],
              "Also the states of the model over all workers."),
    ],
)  # fmt: skip

WORKERS = Dashboard(
    "workers",
    "workers and devices",
    ("pool",),
    [
        Panel("Workers", "none",
              [('max by (pool, state) (millrace_workers{pool=~"$pool"})', "{{pool}} {{state}}")],
              "Live workers, by state."),
        Panel("Predicted drain time", "s",
              [('sum by (pool) (millrace:predicted_drain:seconds{pool=~"$pool"})', "{{pool}}")],
              "Sum over the pool's models; KEDA scales by it."),
        Panel("Capacity used by calls", "percentunit",
              [('max by (pool) (millrace_pool_capacity_used{pool=~"$pool"})', "{{pool}}")],
              "Work of calls in full launches, refused ones too, over what ready workers give."),
        Panel("Devices busy", "percentunit",
              [(f"rate(millrace_device_busy_seconds_total{_RATE})", "{{instance}} {{device}}")],
              "Share of the time in which a launch was on the device.", most=1),
        Panel("Memory of devices", "percentunit",
              [('millrace_device_memory_bytes{kind="used"} / ignoring (kind) '
                'millrace_device_memory_bytes{kind="total"}', "{{instance}} {{device}}")],
              "CPU: memory of the process over that of the machine.", most=1, red=0.95),
        Panel("Device time by model", "percentunit",
              [(_rate("millrace_model_device_seconds_total", "model", ""), "{{model}}")],
              "Number of devices kept busy."),
        Panel("Slices in hand", "none",
              [("sum by (instance, model) (millrace_slices_in_hand)", "{{instance}} {{model}}")],
              "Leases held by workers."),
        Panel("Deaths", "none",
              [("sum by (how) (increase(millrace_worker_deaths_total[$__rate_interval]))",
                "{{how}}"),
               ("sum(increase(millrace_leases_reaped_total[$__rate_interval]))",
                "leases taken back"),
               ("sum(increase(millrace_leases_lost_total[$__rate_interval]))",
                "results that came too late")],
              "Crashed and hung: caused by their work."),
        Panel("Claims and settlements", "s",
              [(_mean("millrace_claim_seconds", "instance", ""), "{{instance}} claim"),
               (_mean("millrace_settle_seconds", "instance", ""), "{{instance}} settle")],
              "Means of the two transactions of a slice."),
        Panel("Loads of models", "s",
              [("max by (instance, model) (millrace_model_load_seconds)",
                "{{instance}} {{model}}")],
              "Duration of the last load, with warm-up."),
    ],
)  # fmt: skip

TENANTS = Dashboard(
    "tenants",
    "tenants and fairness",
    ("model",),
    [
        Panel("Fairness", "none", [("max(millrace_fairness_jain)", "Jain's index")],
              "1 is fair; below 0.8 a tenant is starved.", most=1),
        Panel("Share by fair share", "none",
              [("topk(10, max by (tenant) (millrace_tenant_share_ratio))", "{{tenant}}")],
              "Tenants with a backlog, last minute. 1 is fair."),
        Panel("Device time", "percentunit",
              [(f"topk(10, {_rate('millrace_tenant_device_seconds_total', 'tenant')})",
                "{{tenant}}")],
              "Number of devices, ten largest tenants."),
        Panel("Entries", "ops",
              [(f"topk(10, {_rate('millrace_tenant_entries_total', 'tenant, kind')})",
                "{{tenant}} {{kind}}")],
              "Calls and items launched."),
        Panel("Wait in lanes", "s",
              [(f"topk(10, {_rate('millrace_tenant_wait_seconds_total', 'tenant')} / "
                f"{_rate('millrace_tenant_entries_total', 'tenant')})", "{{tenant}}")],
              "Mean per entry, ten longest."),
        Panel("Size of an entry", "none",
              [(f"topk(10, {_rate('millrace_tenant_units_total', 'tenant')} / "
                f"{_rate('millrace_tenant_entries_total', 'tenant')})", "{{tenant}}")],
              "Mean in the model's unit, ten largest."),
    ],
)  # fmt: skip

PLATFORM = Dashboard(
    "platform",
    "platform",
    (),
    [
        Panel("Database: minimal write", "s",
              [("max(millrace_database_probe_seconds)", "probe")],
              "Until it is committed.", red=0.25),
        Panel("Database: transactions", "s",
              [("histogram_quantile(0.99, sum by (le, job) "
                f"(rate(millrace_database_transaction_seconds_bucket{_RATE})))", "{{job}} p99")],
              "Time for which a transaction held its connection."),
        Panel("Database: connections and size", "none",
              [("sum by (job, state) (millrace_database_connections)", "{{job}} {{state}}"),
               ("max(millrace_database_bytes) / 1e9", "GB")],
              "Over all processes."),
        Panel("Redis: PING", "s", [("max(millrace_redis_probe_seconds)", "probe")],
              "Measured by the keeper.", red=0.05),
        Panel("Redis: commands", "s",
              [("histogram_quantile(0.99, sum by (le, job) "
                f"(rate(millrace_redis_seconds_bucket{_RATE})))", "{{job}} p99")],
              "Except blocking ones."),
        Panel("Database and Redis errors", "ops",
              [(_rate("millrace_database_errors_total", "job", ""), "{{job}} database"),
               (_rate("millrace_redis_errors_total", "job", ""), "{{job}} Redis")],
              "Statements, connections, commands.", red=1),
        Panel("Keeper: failed runs", "ops",
              [(_rate("millrace_keeper_runs_total", "service", 'outcome="failed"'), "{{service}}"),
               (_rate("millrace_nudges_total", "pool", ""), "nudges to {{pool}}")],
              "By service; and nudges sent."),
        Panel("Keeper: time of a run", "s",
              [(_mean("millrace_keeper_run_seconds", "service", ""), "{{service}}")],
              "Means by service."),
        Panel("Webhooks", "none",
              [("max(millrace_webhooks_pending)", "wait"),
               ("max(millrace_webhook_oldest_seconds)", "seconds overdue (oldest)"),
               (_rate("millrace_webhook_attempts_total", "outcome", ""), "{{outcome}} a second")],
              "Deliveries and attempts."),
        Panel("Requests", "reqps",
              [(_rate("millrace_http_requests_total", "status", ""), "{{status}}")],
              "Responses of the api, by status."),
        Panel("Event loop lag", "s",
              [("max by (instance) (millrace_event_loop_lag_seconds)", "{{instance}}")],
              "High lag: the api needs more processes."),
        Panel("Upstreams", "none",
              [("sum by (upstream) (millrace_upstream_limit)", "{{upstream}} at a time"),
               ("max by (upstream) (millrace_upstream_breaker_open)", "{{upstream}} breaker open"),
               (_rate("millrace_upstream_requests_total", "upstream, outcome", ""),
                "{{upstream}} {{outcome}} a second")],
              "Servers outside the platform."),
        Panel("Transfers", "none",
              [("max by (kind) (millrace_transfers_waiting)", "{{kind}} waiting"),
               (_rate("millrace_transfers_total", "kind, outcome", ""), "{{kind}} {{outcome}}/s")],
              "Imports from and exports to files and S3."),
    ],
)  # fmt: skip

GENERATION = Dashboard(
    "generation",
    "models that generate",
    ("model",),
    [
        Panel("Time to the first token", "s",
              _quantiles("millrace_time_to_first_token_seconds", "model", ',kind="call"'),
              "Of calls, from their arrival in a lane."),
        Panel("Time between tokens", "s",
              _quantiles("millrace_inter_token_latency_seconds", "model", ',kind="call"'),
              "Of calls."),
        Panel("Burn rate of the targets", "none",
              [("millrace:generation_target:burn1h{" + _MODEL + "}", "{{model}} {{target}} 1 h"),
               ("millrace:generation_target:burn5m{" + _MODEL + "}", "{{model}} {{target}} 5 min")],
              "Error budget burn rate; 1 uses it up exactly.", red=14.4),
        Panel("Tokens", "none",
              [(_rate("millrace_generation_tokens_total", "model"), "{{model}} generated/s"),
               (_rate("millrace_prompt_tokens_total", "model"), "{{model}} of prompts/s")],
              "Of requests that ended."),
        Panel("Requests", "none",
              [("sum by (model, kind) (millrace_num_requests_running{" + _MODEL + "})",
                "{{model}} {{kind}} running"),
               ("sum by (model, kind) (millrace_num_requests_waiting{" + _MODEL + "})",
                "{{model}} {{kind}} waiting")],
              "Sequences in the last step, and requests that wait for KV blocks."),
        Panel("KV cache", "percentunit",
              [("max by (instance, model) (millrace_kv_cache_usage_perc{" + _MODEL + "})",
                "{{instance}} {{model}}")],
              "KV blocks in use.", most=1, red=0.95),
        Panel("Preemptions", "ops",
              [(_rate("millrace_num_preemptions_total", "model, kind"), "{{model}} {{kind}}")],
              "Sequences that gave their blocks to others; their tokens are kept."),
        Panel("Prompts found in the cache", "percentunit",
              [(f"{_rate('millrace_prefix_cache_hits_total', 'model')} / "
                f"{_rate('millrace_prefix_cache_queries_total', 'model')}", "{{model}}")],
              "Share of the tokens of prompts.", most=1),
        Panel("Queue, prefill and decode", "s",
              [(_mean(f"millrace_request_{stage}_time_seconds", "model"), f"{{{{model}}}} {stage}")
               for stage in ("queue", "prefill", "decode")],
              "Means of calls and items."),
        Panel("Steps", "s",
              [(_mean("millrace_generation_step_seconds", "model, prefill"),
                "{{model}} prefill {{prefill}}")],
              "Mean duration, with and without tokens of prompts."),
        Panel("Ends", "ops",
              [(_rate("millrace_request_success_total", "finished_reason"), "{{finished_reason}}")],
              "Sequences by their finish reason."),
        Panel("KV blocks by tenant", "none",
              [("topk(10, sum by (tenant) (millrace_tenant_kv_cache_blocks{" + _MODEL + "}))",
                "{{tenant}}")],
              "Ten largest."),
    ],
)  # fmt: skip

DASHBOARDS = (OVERVIEW, MODELS, GENERATION, WORKERS, TENANTS, PLATFORM)
