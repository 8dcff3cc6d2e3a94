"""Reports: the last minute of every process's metrics, kept in Redis.

The dashboard and `millrace why` read them, so neither needs Prometheus. If Redis loses them, they
are there again after EVERY_S.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal, TypeAlias

import orjson

from jobs.telemetry.metrics.metrics import EDGES
from jobs.telemetry.reports.window import EVERY_S, Recent, Series, WindowDelta, from_rows, to_rows

ProcessKind = Literal["api", "worker", "keeper"]
Fold = Callable[[list[float]], float]
"""Joins the values of a gauge in several processes."""

KEY = "millrace:reports"
"""Redis hash: process name → `Report.pack()`."""
STALE_S = 4 * EVERY_S  # older reports are ignored: their process may have ended


@dataclass(frozen=True, slots=True)
class Report:
    """Last minute of one process."""

    name: str  #: `api_…`, `keeper_…`, or a worker's incarnation
    kind: ProcessKind
    at: float  #: time of writing, Unix s by Redis' clock
    delta: WindowDelta
    details: Mapping[str, Any]  #: host, pid, pool, device, models, current launches, …

    def pack(self) -> bytes:
        """Returns the report as JSON."""
        delta = self.delta
        return orjson.dumps(
            {
                "name": self.name,
                "kind": self.kind,
                "at": self.at,
                "seconds": delta.seconds,
                "increases": to_rows(delta.increases),
                "gauges": to_rows(delta.gauges),
                "recent": [delta.recent.seconds, to_rows(delta.recent.increases)],
                "about": self.details,
            }
        )

    @classmethod
    def unpack(cls, packed: bytes) -> "Report":
        """Parses JSON. Raises ValueError, LookupError or TypeError if another release wrote it."""
        raw = orjson.loads(packed)
        seconds, recent = raw.get("recent", (0.0, ()))  # earlier releases had none
        delta = WindowDelta(
            raw["seconds"],
            from_rows(raw["increases"]),
            from_rows(raw["gauges"]),
            Recent(seconds, from_rows(recent)),
        )
        return cls(raw["name"], raw["kind"], raw["at"], delta, raw["about"])


def parse_fresh(
    packed: Iterable[bytes], now: float, unpack: Callable[[bytes], Report] = Report.unpack
) -> list[Report]:
    """Returns the reports that aren't stale and that this release can read, by name.

    now: Unix time by Redis' clock, s.
    """
    reports = []
    for raw in packed:
        try:
            report = unpack(raw)
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
        if abs(report.at - now) < STALE_S:  # absolute: a clock may be set back
            reports.append(report)
    return sorted(reports, key=lambda report: report.name)


class ReportSet:
    """Metrics of several processes together.

    Labels are selected by keyword (`class_` for `class`) and summed over where omitted.
    """

    def __init__(self, reports: Iterable[Report]) -> None:
        self.reports = list(reports)
        self._counts_by_name: dict[str, list[_Sample]] | None = None
        self._gauges_by_name: dict[str, list[_Sample]] | None = None

    def by_kind(self, *kinds: ProcessKind) -> "ReportSet":
        """Returns the reports of these kinds of processes."""
        return ReportSet(report for report in self.reports if report.kind in kinds)

    def recent(self) -> "ReportSet":
        """Returns the reports with the few counters of their last RECENT_S."""
        return ReportSet(
            replace(one, delta=WindowDelta(recent.seconds, recent.increases, {}))
            for one in self.reports
            if (recent := one.delta.recent).seconds
        )

    def by_process(self, name: str) -> "ReportSet":
        """Returns the report of one process, or none."""
        return ReportSet(report for report in self.reports if report.name == name)

    def increase(self, metric: str, **labels: str) -> float:
        """Returns the increase of a counter over all processes."""
        return sum(value for _, value, _ in self._increases(metric, labels))

    def rate(self, metric: str, **labels: str) -> float:
        """Returns the increase per second, each process over its own window."""
        return sum(value / max(1e-9, s) for _, value, s in self._increases(metric, labels))

    def increase_by(self, metric: str, label: str, **labels: str) -> dict[str, float]:
        """Returns the increase by values of a label, largest first."""
        return _by(label, ((its, value) for its, value, _ in self._increases(metric, labels)))

    def rate_by(self, metric: str, label: str, **labels: str) -> dict[str, float]:
        """Returns the rate by values of a label, largest first."""
        samples = self._increases(metric, labels)
        return _by(label, ((its, value / max(1e-9, s)) for its, value, s in samples))

    def mean(self, histogram: str, **labels: str) -> float | None:
        """Returns the mean of a histogram; None if it is empty."""
        count = self.increase(f"{histogram}_count", **labels)
        return self.increase(f"{histogram}_sum", **labels) / count if count else None

    def quantile(self, histogram: str, q: float, **labels: str) -> float | None:
        """Returns a quantile as Prometheus' histogram_quantile does: by linear interpolation
        within the bucket; None if the histogram is empty."""
        tops = dict.fromkeys((*EDGES[histogram], inf), 0.0)
        for its, value, _ in self._increases(f"{histogram}_bucket", labels):
            top = float(its["le"])
            tops[top] = tops.get(top, 0.0) + value
        return quantile_of(tops, q)

    def gauge(self, metric: str, fold: Fold = max, **labels: str) -> float | None:
        """Returns a gauge, folded over processes and omitted labels; None if no process has it."""
        values = [value for _, value, _ in self._gauges(metric, labels)]
        return fold(values) if values else None

    def gauge_by(
        self, metric: str, label: str, fold: Fold = max, **labels: str
    ) -> dict[str, float]:
        """Returns a gauge by values of a label."""
        groups: dict[str, list[float]] = {}
        for its, value, _ in self._gauges(metric, labels):
            groups.setdefault(its.get(label, ""), []).append(value)
        return {name: fold(values) for name, values in groups.items()}

    def _increases(self, metric: str, labels: Mapping[str, str]) -> "Iterator[_Sample]":
        if self._counts_by_name is None:
            self._counts_by_name = _by_name(self.reports, lambda delta: delta.increases)
        return _matching(self._counts_by_name.get(metric, ()), labels)

    def _gauges(self, metric: str, labels: Mapping[str, str]) -> "Iterator[_Sample]":
        if self._gauges_by_name is None:
            self._gauges_by_name = _by_name(self.reports, lambda delta: delta.gauges)
        return _matching(self._gauges_by_name.get(metric, ()), labels)


_Sample: TypeAlias = tuple[dict[str, str], float, float]
"""Labels and value of a sample, and the length of its window in seconds."""


def _by_name(
    reports: Iterable[Report], part: Callable[[WindowDelta], Mapping[Series, float]]
) -> dict[str, list[_Sample]]:
    samples: dict[str, list[_Sample]] = {}
    for report in reports:
        for (name, labels), value in part(report.delta).items():
            samples.setdefault(name, []).append((dict(labels), value, report.delta.seconds))
    return samples


def _matching(samples: Iterable[_Sample], labels: Mapping[str, str]) -> Iterator[_Sample]:
    wanted = {key.rstrip("_"): value for key, value in labels.items()}.items()
    return (sample for sample in samples if wanted <= sample[0].items())


def _by(label: str, samples: Iterable[tuple[dict[str, str], float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, value in samples:
        key = labels.get(label, "")
        sums[key] = sums.get(key, 0.0) + value
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def quantile_of(counts: Mapping[float, float], q: float) -> float | None:
    """Returns a quantile of a histogram; None if it is empty. counts: by upper bound of a bucket,
    those in it alone."""
    buckets = sorted(counts.items())
    total = sum(count for _, count in buckets)
    if not total:
        return None
    rank, low, below = q * total, 0.0, 0.0
    for top, count in buckets:
        if count and below + count >= rank:
            return low if top == inf else low + (top - low) * (rank - below) / count
        low, below = top, below + count
    return low
