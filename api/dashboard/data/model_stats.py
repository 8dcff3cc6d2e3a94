"""Statistics of model versions, from the database and the reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.context import Context
from jobs.models.model import Model
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import workers
from jobs.store.queue.workers import LOADING_STATES, NOWHERE, ModelStatus
from jobs.telemetry.metrics.metrics import EDGES, STAGES
from jobs.telemetry.reports.reports import ReportSet

_ROWS = "millrace_launch_rows"
_TTFT, _ITL = "millrace_time_to_first_token_seconds", "millrace_inter_token_latency_seconds"
_TENANTS = 6  # that are named in a bar


@dataclass(frozen=True, slots=True)
class Row:
    """Model version."""

    key: str
    model: Model | None  #: None: no longer declared
    status: ModelStatus
    target_s: float
    figures: Mapping[str, Any]
    aliases: Sequence[str]  #: that name it
    rollout_percent: float | None  #: of an open rollout whose canary it is

    @property
    def ready(self) -> int:
        """Number of workers in which it is ready."""
        return self.status.states.get("ready", 0)

    @property
    def condition(self) -> tuple[str, str]:
        """State in words, and its colour class."""
        states = self.status.states
        if states.get("ready"):
            return "ready", "good"
        if states.get("failed"):
            return "failed", "bad"
        for state in LOADING_STATES:
            if states.get(state):
                return state, "busy"
        return ("at rest", "") if states.get("absent") else ("no worker", "warning")


def statuses(context: Context) -> Mapping[str, ModelStatus]:
    """Returns the states of models in workers by name@version; {} without the database."""
    try:
        with context.database.connect() as tx:
            return workers.model_statuses(tx, 2 * context.settings.lease_s)
    except CONNECTION_ERRORS:
        return {}


def rows(context: Context, statuses: Mapping[str, ModelStatus], reports: ReportSet) -> list[Row]:
    """Returns rows of all models that are declared or still in workers (`statuses`)."""
    declared = {model.key: model for model in context.models}
    keys = (*declared, *sorted(statuses.keys() - declared.keys()))
    return [row(context, key, statuses.get(key, NOWHERE), reports) for key in keys]


def row(context: Context, key: str, status: ModelStatus, reports: ReportSet) -> Row:
    """Returns the row of one version."""
    model, routing = context.models.get(key), context.models.routing
    target_s = model.answer_target_ms / 1000 if model else 0.0
    name, _, version = key.rpartition("@")
    named = routing.aliases.items()
    aliases = sorted(alias for (of, alias), means in named if (of, means) == (name, version))
    rollout = routing.rollouts.get(name)
    percent = rollout.percent if rollout and rollout.canary == version else None
    return Row(key, model, status, target_s, figures(reports, model=key), aliases, percent)


def figures(now: ReportSet, **labels: Any) -> dict[str, Any]:
    """Returns the figures of a model, or of all, over the last minute."""
    met = now.increase_by("millrace_call_target_total", "met", **labels)
    units = now.increase("millrace_launch_units_total", **labels)
    padded = now.increase("millrace_launch_padded_units_total", **labels)
    return {
        "calls_s": now.rate("millrace_calls_total", **labels),
        "items_s": now.rate("millrace_items_total", **labels),
        **{
            f"p{q}_s": now.quantile("millrace_call_seconds", q / 100, **labels)
            for q in (50, 95, 99)
        },
        "missed": 1 - met.get("true", 0.0) / sum(met.values()) if met else None,
        "queue_calls": now.gauge("millrace_queue_calls", **labels),
        "queue_items": now.gauge("millrace_queue_items", **labels),
        "oldest_s": now.gauge("millrace_queue_oldest_seconds", **labels),
        "drain_s": now.gauge("millrace_predicted_drain_seconds", **labels),
        "launches_s": now.rate("millrace_launches_total", **labels),
        "rows": now.mean(_ROWS, **labels),
        "fill": now.mean("millrace_launch_fill_ratio", **labels),
        "padding": 1 - units / padded if padded else None,
        "launch_s": now.mean("millrace_launch_seconds", **labels),
        "prediction": now.quantile("millrace_launch_prediction_ratio", 0.5, **labels),
        "lanes": now.gauge("millrace_lanes_waiting", **labels),
    }


def tokens(reports: ReportSet, key: str) -> dict[str, float | None]:
    """Returns rates and latencies of a model's tokens in the last minute; empty where it doesn't
    generate."""
    if reports.gauge("millrace_num_requests_running", sum, model=key) is None:
        return {}
    prompts = reports.increase("millrace_prefix_cache_queries_total", model=key)
    hits = reports.increase("millrace_prefix_cache_hits_total", model=key)
    times = {
        f"{name}_p{q}_s": reports.quantile(metric, q / 100, model=key, kind="call")
        for name, metric in (("ttft", _TTFT), ("itl", _ITL))
        for q in (50, 95)
    }
    return times | {
        "output_s": reports.rate("millrace_generation_tokens_total", model=key),
        "prompt_s": reports.rate("millrace_prompt_tokens_total", model=key),
        "cached": hits / prompts if prompts else None,
    }


def kv_cache(reports: ReportSet, key: str) -> dict[str, float]:
    """Returns the KV blocks of a model over all workers: in use by tenant, most first, and free.
    Empty where it doesn't generate, or its server doesn't tell."""
    blocks = reports.gauge("millrace_kv_cache_blocks", sum, model=key) or 0.0
    if not blocks:
        return {}
    used = reports.gauge_by("millrace_tenant_kv_cache_blocks", "tenant", sum, model=key)
    held = sorted(((name, n) for name, n in used.items() if n), key=lambda pair: -pair[1])
    named, others = dict(held[:_TENANTS]), sum(n for _, n in held[_TENANTS:])
    free = max(0.0, blocks - sum(n for _, n in held))
    return named | ({"(others)": others} if others else {}) | {"(free)": free}


def stages(reports: ReportSet, **labels: str) -> dict[str, float]:
    """Returns the mean time of calls by stage, ms."""
    means = {
        stage: reports.mean("millrace_call_stage_seconds", stage=stage, **labels)
        for stage in STAGES
    }
    return {stage: 1000 * mean for stage, mean in means.items() if mean is not None}


def launch_sizes(reports: ReportSet, **labels: str) -> dict[str, float]:
    """Returns launches by number of entries, in ranges."""
    counts, low = {}, 0
    for top in EDGES[_ROWS]:
        name = f"{top:.0f}" if top - low <= 1 else f"{low + 1}–{top:.0f}"
        counts[name] = reports.increase(f"{_ROWS}_bucket", le=f"{top:.1f}", **labels)
        low = int(top)
    if rest := reports.increase(f"{_ROWS}_bucket", le="+Inf", **labels):
        counts[f"{low + 1}+"] = rest
    return trimmed(counts)


def trimmed(counts: dict[str, float]) -> dict[str, float]:
    """Drops empty ranges at the end."""
    names = list(counts)
    while len(names) > 4 and not counts[names[-1]]:
        names.pop()
    return {name: counts[name] for name in names}


def curves(reports: ReportSet, key: str) -> dict[str, list[tuple[float, float]]]:
    """Returns predicted launch times, (rows, ms), by bucket, from the first worker that reports
    them."""
    for report in reports.by_kind("worker").reports:
        profile = report.details.get("models", {}).get(key, {}).get("profile", {})
        if profile:
            return {
                f"up to {bucket}" if bucket != "0" else "all lengths": [
                    (1.0, times["one_ms"]), (float(times["full_rows"]), times["full_ms"]),
                ]
                for bucket, times in sorted(profile.items(), key=lambda pair: int(pair[0]))
            }  # fmt: skip
    return {}
