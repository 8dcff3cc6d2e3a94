"""What a rule finds: a cause, its figures, and what to do about it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Severity = Literal["info", "warning", "critical"]
"""info: worth knowing; warning: some get less than they should; critical: something stands
still."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

Code = Literal[
    "api_busy",
    "call_cancelled",
    "call_failed",
    "call_in_time",
    "call_late",
    "call_refused",
    "database_stalls",
    "device_saturated",
    "dying_worker",
    "fragmented_lanes",
    "hot_lane",
    "item_retried",
    "item_waits",
    "job_ended",
    "job_held",
    "job_runs",
    "job_waits",
    "keeper_absent",
    "keeper_failing",
    "long_texts",
    "misprediction",
    "model_failed",
    "model_loading",
    "model_fails",
    "no_reports",
    "no_worker",
    "overload",
    "padding_waste",
    "recording",
    "redis_slow",
    "slow_model",
    "slow_webhook_receiver",
    "starved_tenant",
    "stuck_jobs",
    "suspect_slices",
    "upstream_limited",
    "waiting_for_device",
    "waiting_to_batch",
]
CODES: tuple[Code, ...] = get_args(Code)
"""Each has a line in ops/docs/why.md."""

TOLD_TO_TENANTS: frozenset[Code] = frozenset(
    {
        "api_busy",
        "database_stalls",
        "device_saturated",
        "misprediction",
        "model_failed",
        "model_fails",
        "model_loading",
        "no_reports",
        "no_worker",
        "overload",
        "redis_slow",
        "slow_model",
        "upstream_limited",
        "waiting_for_device",
        "waiting_to_batch",
    }
)
"""Those of a model and of the platform whose words say nothing of who else is there."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One cause. about: "model:m@1", "tenant:t", "worker:12", "webhooks", "database", "job:job_…",
    …; words: what is the matter, with its figures; advice: what to change; evidence: the figures,
    in base units."""

    code: Code
    severity: Severity
    about: str
    words: str
    advice: str = ""
    evidence: Mapping[str, float | str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Figures to four significant digits."""
        shown = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in self.evidence.items()
        }
        return {**asdict(self), "evidence": shown}


def most_severe_first(found: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Of those that are as severe, the order is kept."""
    return sorted(found, key=lambda one: -SEVERITIES.index(one.severity))


def told_to_tenants(found: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Without those that say something of other tenants."""
    return [one for one in found if one.code in TOLD_TO_TENANTS]
