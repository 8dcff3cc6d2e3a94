"""Figures of a minute by subject: everything, each model, worker and pool; from all reports."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from jobs.telemetry.metrics.metrics import EDGES
from jobs.telemetry.reports.reports import Report, ReportSet, quantile_of
from jobs.telemetry.reports.window import Series

EVERYTHING = "everything"
"""Subject of the whole platform; others are `model:minilm@1`, `worker:12`, `pool:default`."""
REFUSED = ("predicted_wait", "overloaded", "no_worker", "quota_exceeded")
"""Outcomes of calls that no worker got."""

_LATENCY = ("millrace_call_seconds", "millrace_launch_seconds")
_WAITING = ("millrace_queue_calls", "millrace_queue_items")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one subject; None: it has no such figure, or none is known."""

    calls_s: float | None = None  #: answered calls per second; of a worker or pool: launched
    items_s: float | None = None  #: succeeded items per second, likewise
    tokens_s: float | None = None  #: generated tokens per second
    refused_s: float | None = None  #: refused calls per second
    failed_s: float | None = None  #: failed calls and items per second
    waiting: float | None = None  #: calls and items without a result
    busy: float | None = None  #: busy share of its devices; of a model: devices busy with it
    p50_s: float | None = None  #: latency of calls; of a worker or pool: of launches
    p95_s: float | None = None


def figures_by_subject(reports: ReportSet) -> dict[str, Figures]:
    """Returns the figures of the last minute, by subject; none without reports."""
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    for report in reports.reports:
        add = _add_worker if report.kind == "worker" else _add_other
        add(sums, report)
    return {subject: its.figures(subject) for subject, its in sorted(sums.items())}


@dataclass(slots=True)
class _Sums:
    rates: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    busy: list[float] = field(default_factory=list)  #: shares, by worker
    buckets: defaultdict[str, defaultdict[float, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    waiting: dict[tuple[str, str], float] = field(default_factory=dict)  #: by gauge and model

    def figures(self, subject: str) -> Figures:
        """Returns the figures of the subject that these sums are of."""
        rates = {name: self.rates.get(name, 0.0) for name in ("calls_s", "items_s", "failed_s")}
        serves = not subject.startswith(("worker:", "pool:"))
        busy: float | None = self.rates.get("busy", 0.0)
        if not subject.startswith("model:"):
            busy = sum(self.busy) / len(self.busy) if self.busy else None
        latency = _LATENCY[0] if serves else _LATENCY[1]
        tops = dict.fromkeys((*EDGES[latency], inf), 0.0) | self.buckets[latency]
        return Figures(
            **rates,
            tokens_s=self.rates.get("tokens_s"),
            refused_s=self.rates.get("refused_s", 0.0) if serves else None,
            waiting=sum(self.waiting.values()) if self.waiting else None,
            busy=busy,
            p50_s=quantile_of(tops, 0.5),
            p95_s=quantile_of(tops, 0.95),
        )


def _add_worker(sums: Mapping[str, _Sums], report: Report) -> None:
    own = [f"worker:{report.name}"]
    if pool := report.details.get("pool"):
        own.append(f"pool:{pool}")
    share = 0.0  # of the time that its device was busy
    for name, labels, value, rate in _samples(report):
        model = f"model:{labels.get('model', '')}"
        match name:
            case "millrace_items_total":
                served = {"succeeded": "items_s", "failed": "failed_s"}.get(labels["outcome"])
                _add(sums, served, rate, EVERYTHING, model)
                if served == "failed_s":
                    _add(sums, served, rate, *own)
            case "millrace_entries_total":
                _add(sums, f"{labels['kind']}s_s", rate, *own)
            case "millrace_generation_tokens_total":
                _add(sums, "tokens_s", rate, EVERYTHING, model, *own)
            case "millrace_model_device_seconds_total":
                _add(sums, "busy", rate, model)
            case "millrace_device_busy_seconds_total":
                share += rate
            case "millrace_launch_seconds_bucket":
                for subject in own:
                    sums[subject].buckets[_LATENCY[1]][float(labels["le"])] += value
    for subject in (EVERYTHING, *own):
        sums[subject].busy.append(min(1.0, share))


def _add_other(sums: Mapping[str, _Sums], report: Report) -> None:
    for name, labels, value, rate in _samples(report):
        model = f"model:{labels.get('model', '')}"
        if name == "millrace_calls_total":
            _add(sums, _kind_of(labels["outcome"]), rate, EVERYTHING, model)
        elif name == "millrace_call_seconds_bucket":
            for subject in (EVERYTHING, model):
                sums[subject].buckets[_LATENCY[0]][float(labels["le"])] += value
    for (name, pairs), value in report.delta.gauges.items():
        if name in _WAITING:
            model = dict(pairs)["model"]
            for subject in (EVERYTHING, f"model:{model}"):
                waiting, key = sums[subject].waiting, (name, model)
                waiting[key] = max(waiting.get(key, 0.0), value)  # every keeper reports all


def _samples(report: Report) -> Iterator[tuple[str, dict[str, str], float, float]]:
    """Yields name, labels, increase and increase per second of the counters that are needed."""
    seconds = max(1e-9, report.delta.seconds)
    increases: Mapping[Series, float] = report.delta.increases
    for (name, labels), value in increases.items():
        if name in _NEEDED:
            yield name, dict(labels), value, value / seconds


_NEEDED = frozenset(
    {
        "millrace_items_total", "millrace_entries_total", "millrace_generation_tokens_total",
        "millrace_model_device_seconds_total", "millrace_device_busy_seconds_total",
        "millrace_calls_total", *(f"{name}_bucket" for name in _LATENCY),
    }
)  # fmt: skip


def _kind_of(outcome: str) -> str | None:
    """Returns the figure that calls with this outcome count for."""
    if outcome in REFUSED:
        return "refused_s"
    return {"succeeded": "calls_s", "cancelled": None}.get(outcome, "failed_s")


def _add(sums: Mapping[str, _Sums], figure: str | None, rate: float, *subjects: str) -> None:
    if figure:
        for subject in subjects:
            sums[subject].rates[figure] += rate
