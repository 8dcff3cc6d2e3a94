"""Figures of models that generate, over the last minute."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.telemetry.reports.reports import ReportSet


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a generator of one kind."""

    count: float = 0.0
    seconds: float = 0.0  #: mean duration


@dataclass(frozen=True, slots=True)
class Generation:
    """Generation of a model."""

    kv_usage: float = 0.0  #: share of the KV blocks in use, 0 to 1, of the fullest worker
    running: float = 0.0  #: sequences of calls and items
    waiting: float = 0.0  #: calls' sequences
    preemptions: float = 0.0  #: of calls
    itl_missed: float = 0.0  #: share of `itl_judged` that missed target_itl_ms, 0 to 1
    itl_judged: float = 0.0  #: calls
    prefilling: Steps = field(default_factory=Steps)  #: with tokens of prompts
    decoding: Steps = field(default_factory=Steps)  #: without
    blocks: Mapping[str, float] = field(default_factory=dict)  #: in use, by tenant, most first

    @classmethod
    def from_reports(cls, reports: ReportSet, key: str) -> "Generation":
        """Reads the figures of one model; all are 0 where it doesn't generate."""
        met = reports.increase_by(
            "millrace_generation_target_total", "met", model=key, target="itl"
        )
        judged = sum(met.values())
        metric, requests = "millrace_tenant_kv_cache_blocks", "millrace_num_requests"
        blocks = reports.gauge_by(metric, "tenant", sum, model=key)
        return cls(
            kv_usage=reports.gauge("millrace_kv_cache_usage_perc", model=key) or 0.0,
            running=reports.gauge(f"{requests}_running", sum, model=key) or 0.0,
            waiting=reports.gauge("millrace_num_requests_waiting", sum, model=key, kind="call")
            or 0.0,
            preemptions=reports.increase("millrace_num_preemptions_total", model=key, kind="call"),
            itl_missed=met.get("false", 0.0) / judged if judged else 0.0,
            itl_judged=judged,
            prefilling=_steps(reports, key, "true"),
            decoding=_steps(reports, key, "false"),
            blocks=dict(sorted(blocks.items(), key=lambda pair: -pair[1])),
        )


def _steps(reports: ReportSet, key: str, prefill: str) -> Steps:
    name, labels = "millrace_generation_step_seconds", {"model": key, "prefill": prefill}
    count = reports.increase(f"{name}_count", **labels)
    return Steps(count, reports.mean(name, **labels) or 0.0)
