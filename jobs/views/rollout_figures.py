"""Figures of a rollout arranged for people: by the dashboard, and by `millrace rollout status`.

They come from JSON (jobs/rollouts/controller.py): what a release doesn't know is left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import log
from typing import Any, Literal

from jobs.rollouts.guardrails import TITLES

Figures = Mapping[str, Any]

LANES = ("canary", "control")
_NONE = "–"


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One figure of both lanes, as text."""

    title: str
    canary: str
    control: str


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """Evidence of a guardrail against the canary."""

    name: str
    title: str
    value: float  #: 1: none
    alarm_at: float  #: from which on it rolls back

    @property
    def part(self) -> float:
        """Way to the alarm, 0 to 1: evidence grows by factors."""
        return min(1.0, log(max(1.0, self.value)) / log(self.alarm_at))


@dataclass(frozen=True, slots=True)
class CostRow:
    """Growth of a cost over the control's, as shares: 0.1 is 10 % more."""

    title: str
    growth: float
    low: float
    high: float
    hold: float  #: above it the rollout is held, once the whole interval is
    limit: float  #: above it it is rolled back

    @property
    def verdict(self) -> Literal["limit", "hold", "open", "within"]:
        """The bound that the interval is above; "open": it holds one of them, and more launches
        will tell."""
        if self.low > self.limit:
            return "limit"
        if self.low > self.hold:
            return "hold"
        return "open" if self.high > self.hold else "within"

    @property
    def text(self) -> str:
        """Growth with its interval."""
        return f"{self.growth:+.1%} ({self.low:+.1%} to {self.high:+.1%})"


def lane_rows(figures: Figures) -> list[LaneRow]:
    """Returns the figures of both lanes, but for those that neither has."""
    lanes = [figures.get("lanes", {}).get(name, {}) for name in LANES]
    rows = []
    for title, name, text in _ROWS:
        values = [lane.get(name) for lane in lanes]
        if any(values) or (name in _ALWAYS and any(lanes)):
            rows.append(
                LaneRow(title, *(_NONE if value is None else text(value) for value in values))
            )
    return rows


def evidence_rows(figures: Figures) -> Iterator[EvidenceRow]:
    """Yields the evidence of each guardrail, and of all together, which decides."""
    evidence: Mapping[str, float] = figures.get("evidence", {})
    if not evidence:
        return
    alarm_at = figures["alarm_at"]
    for name, value in evidence.items():
        yield EvidenceRow(name, TITLES.get(name, name), value, alarm_at)
    total = sum(evidence.values()) / len(evidence)
    yield EvidenceRow("all", "all together", total, alarm_at / len(evidence))


def cost_rows(figures: Figures, policy: Mapping[str, Any]) -> list[CostRow]:
    """Returns the costs whose interval is known. policy: of the rollout, as JSON."""
    bounds = policy.get("cost_hold", 0.0), policy.get("cost_limit", 0.5)
    return [
        CostRow(name, ratio - 1, low - 1, high - 1, *bounds)
        for name, (ratio, low, high) in figures.get("cost", {}).items()
    ]


def _count(value: float) -> str:
    return f"{value:,}"


def _share(value: list[float]) -> str:
    share, low, high = value
    return f"{share:.2%} ({100 * low:.2f} to {100 * high:.2f})"


def _times(value: list[float]) -> str:
    return " / ".join(f"{ms:,.1f}" for ms in value) + " ms"


def _milliseconds(value: float) -> str:
    return f"{value:,.4g} ms"


def _price(value: float) -> str:
    return f"{value:,.4g}"


_ALWAYS = ("calls", "launches", "failed")
_ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("Calls", "calls", _count),
    ("Launches", "launches", _count),
    ("Callers", "callers", _count),
    ("Missed calls", "missed", _count),
    ("Failed calls", "failed", _count),
    ("Share with a failed call", "failed_share", _share),
    ("Empty outputs", "empty", _count),
    ("Truncated outputs", "truncated", _count),
    ("Invalid outputs", "invalid", _count),
    ("Latency p50 / p95", "latency_ms", _times),
    ("First token p50 / p95", "ttft_ms", _times),
    ("Between tokens p50 / p95", "itl_ms", _times),
    ("Device time a call", "device_ms", _milliseconds),
    ("Price a call", "price", _price),
)
