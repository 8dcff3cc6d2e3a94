"""Findings: a cause, its figures, and advice."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

Severity = Literal["info", "warning", "critical"]
"""info: worth knowing; warning: degraded service; critical: something stands still."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

Code = Literal[
    "adapter_thrash",
    "api_busy",
    "call_cancelled",
    "call_failed",
    "call_in_time",
    "call_late",
    "call_refused",
    "cheaper_workers",
    "database_stalls",
    "device_saturated",
    "dying_worker",
    "fragmented_lanes",
    "gpu_errors",
    "gpu_idles_between_launches",
    "gpu_throttled",
    "hot_lane",
    "item_retried",
    "item_waits",
    "job_ended",
    "job_held",
    "job_runs",
    "job_waits",
    "keeper_absent",
    "keeper_failing",
    "kv_cache_full",
    "kv_cache_hogged",
    "launches_too_small",
    "long_texts",
    "misprediction",
    "model_failed",
    "model_loading",
    "model_fails",
    "no_prepare_worker",
    "no_reports",
    "no_worker",
    "one_worker",
    "overload",
    "padding_waste",
    "pool_short",
    "prefill_starves_decode",
    "preparation_ahead",
    "preparation_saturated",
    "recording",
    "redis_slow",
    "sick_device",
    "slow_model",
    "slow_webhook_receiver",
    "spot_reclaimed",
    "starved_tenant",
    "stuck_jobs",
    "suspect_slices",
    "unreachable_target",
    "upstream_limited",
    "waiting_for_device",
    "waiting_to_batch",
    "worker_drained",
]
CODES: tuple[Code, ...] = get_args(Code)
"""All codes; ops/docs/how-to/operations/why.md has a line for each."""

VISIBLE_TO_TENANTS: Mapping[Code, str] = {
    "adapter_thrash": "more adapters are in use than workers hold: requests wait for them",
    "api_busy": "the api is overloaded: calls wait for it",
    "database_stalls": "the database stalls: nothing is claimed or recorded until it recovers",
    "device_saturated": "",
    "fragmented_lanes": "",
    "gpu_idles_between_launches": "",
    "kv_cache_full": "the model's KV cache is full: requests wait until others end",
    "launches_too_small": "",
    "misprediction": "",
    "model_failed": "",
    "model_fails": "the model fails on some inputs, and the inputs are not the cause",
    "model_loading": "the model is being loaded",
    "no_prepare_worker": "no worker prepares items of the model",
    "no_reports": "",
    "no_worker": "no worker is ready for the model",
    "one_worker": "one worker has all that is left of the model's items",
    "preparation_saturated": "",
    "overload": "more calls arrive than the model can answer in time: some are rejected",
    "redis_slow": "Redis is slow: every call waits for it",
    "slow_model": "",
    "unreachable_target": "one input alone takes longer on the device than the model's target",
    "waiting_for_device": "",
    "waiting_to_batch": "",
    "worker_drained": "no worker takes work of the model",
}
"""Findings that tenants may see, and their wording: "" keeps the finding's own, which must not
count the calls of others or name internals."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Finding with one cause."""

    code: Code
    severity: Severity
    about: str  #: subject: "model:m@1", "tenant:t", "worker:12", "database", "job:job_…", …
    words: str  #: problem, with its figures
    advice: str = ""
    #: figures, in base units
    evidence: Mapping[str, float | str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns the finding with figures of four significant digits."""
        evidence = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in self.evidence.items()
        }
        return {**asdict(self), "evidence": evidence}


def most_severe_first(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Sorts by severity; stable."""
    return sorted(diagnoses, key=lambda one: -SEVERITIES.index(one.severity))


def visible_to_tenants(diagnoses: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Drops findings and figures that reveal other tenants."""
    return [_plain(one) for one in diagnoses if one.code in VISIBLE_TO_TENANTS]


def _plain(one: Diagnosis) -> Diagnosis:
    words = VISIBLE_TO_TENANTS[one.code]
    return replace(one, words=words, advice="", evidence={}) if words else replace(one, evidence={})
