"""What a rule finds: a cause, its figures, and what to do about it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
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

VISIBLE_TO_TENANTS: Mapping[Code, str] = {
    "api_busy": "the api is busy: calls wait for it",
    "database_stalls": "the database stalls: nothing is claimed or recorded until it goes on",
    "device_saturated": "",
    "fragmented_lanes": "",
    "misprediction": "",
    "model_failed": "",
    "model_fails": "some of what the model is given fails, and not for what is in it",
    "model_loading": "the model is being loaded",
    "no_reports": "",
    "no_worker": "no worker is ready for the model",
    "overload": "more calls come than the model answers in time: some are refused",
    "redis_slow": "Redis is slow: every call waits for it",
    "slow_model": "",
    "waiting_for_device": "",
    "waiting_to_batch": "",
}
"""What tenants are told of a model and of the platform, and in which words: its own (""), where
they count nobody's calls and name nothing of ours."""


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


def visible_to_tenants(found: Iterable[Diagnosis]) -> list[Diagnosis]:
    """Without those, and without the figures, that say something of other tenants."""
    return [_plain(one) for one in found if one.code in VISIBLE_TO_TENANTS]


def _plain(one: Diagnosis) -> Diagnosis:
    words = VISIBLE_TO_TENANTS[one.code]
    return replace(one, words=words, advice="", evidence={}) if words else replace(one, evidence={})
