"""What every process reports of its last minute, in Redis, and how all of it reads together.

The dashboard and `millrace why` need no Prometheus for that: the same metrics, a minute of them.
Redis may lose them; they are there again after EVERY_S.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeAlias

import orjson

from jobs.telemetry.metrics.metrics import EDGES
from jobs.telemetry.reports.window import EVERY_S, Series, Stretch, flat, unflat

ProcessKind = Literal["api", "worker", "keeper"]

KEY = "millrace:reports"
"""A hash: process name → `Report.pack()`."""
STALE_S = 4 * EVERY_S
"""A report that is older says nothing of now: its process may be gone."""


@dataclass(frozen=True, slots=True)
class Report:
    """One process over its last minute. name: `api_…`, `keeper_…`, or a worker's incarnation;
    at: Unix time in seconds by Redis' clock, when it was written; about: what else is known of it
    (host, pid, pool, device, models, the launch that it is in, …)."""

    name: str
    kind: ProcessKind
    at: float
    stretch: Stretch
    about: Mapping[str, Any]

    def pack(self) -> bytes:
        stretch = self.stretch
        return orjson.dumps(
            {
                "name": self.name,
                "kind": self.kind,
                "at": self.at,
                "seconds": stretch.seconds,
                "increases": flat(stretch.increases),
                "gauges": flat(stretch.gauges),
                "about": self.about,
            }
        )

    @classmethod
    def unpack(cls, packed: bytes) -> "Report":
        """Raises ValueError, LookupError or TypeError where it is of another release."""
        found = orjson.loads(packed)
        stretch = Stretch(found["seconds"], unflat(found["increases"]), unflat(found["gauges"]))
        return cls(found["name"], found["kind"], found["at"], stretch, found["about"])


def readable(
    packed: Iterable[bytes], now: float, unpack: Callable[[bytes], Report] = Report.unpack
) -> list[Report]:
    """Those that are of now, and of this release. now: Unix time by Redis' clock."""
    found = []
    for raw in packed:
        try:
            report = unpack(raw)
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
        if abs(report.at - now) < STALE_S:  # after it too: a clock may be set back
            found.append(report)
    return sorted(found, key=lambda report: report.name)


class Reading:
    """Reports read together. Labels are asked for by keyword; those that are left out are summed
    over (`class` is spelled `class_`)."""

    def __init__(self, reports: Iterable[Report]) -> None:
        self.reports = list(reports)
        self._counts: dict[str, list[_Found]] | None = None
        self._stands: dict[str, list[_Found]] | None = None

    def of(self, *kinds: ProcessKind) -> "Reading":
        """Those of such processes alone."""
        return Reading(report for report in self.reports if report.kind in kinds)

    def one(self, name: str) -> "Reading":
        """That of one process."""
        return Reading(report for report in self.reports if report.name == name)

    def increase(self, metric: str, **labels: str) -> float:
        """By how much a counter grew, all processes together."""
        return sum(value for _, value, _ in self._increases(metric, labels))

    def rate(self, metric: str, **labels: str) -> float:
        """The same per second: each process by the time that it reports of."""
        return sum(value / max(1e-9, s) for _, value, s in self._increases(metric, labels))

    def increase_by(self, metric: str, label: str, **labels: str) -> dict[str, float]:
        """The increase for each value of one label, the largest first."""
        return _by(label, ((found, v) for found, v, _ in self._increases(metric, labels)))

    def rate_by(self, metric: str, label: str, **labels: str) -> dict[str, float]:
        """The rate for each value of one label, the largest first."""
        found = self._increases(metric, labels)
        return _by(label, ((its, value / max(1e-9, s)) for its, value, s in found))

    def mean(self, histogram: str, **labels: str) -> float | None:
        """Of what a histogram saw; None: nothing."""
        count = self.increase(f"{histogram}_count", **labels)
        return self.increase(f"{histogram}_sum", **labels) / count if count else None

    def quantile(self, histogram: str, q: float, **labels: str) -> float | None:
        """By linear interpolation within the bucket, as Prometheus' histogram_quantile; None: it
        saw nothing."""
        tops = dict.fromkeys((*EDGES[histogram], inf), 0.0)
        for found, value, _ in self._increases(f"{histogram}_bucket", labels):
            top = inf if found["le"] == "+Inf" else float(found["le"])
            tops[top] = tops.get(top, 0.0) + value
        return _quantile(sorted(tops.items()), q)

    def gauge(
        self, metric: str, fold: Callable[[list[float]], float] = max, **labels: str
    ) -> float | None:
        """Folded (max, sum, …) over processes and the labels that are left out; None: no process
        has it."""
        found = [value for _, value, _ in self._gauges(metric, labels)]
        return fold(found) if found else None

    def gauge_by(
        self,
        metric: str,
        label: str,
        fold: Callable[[list[float]], float] = max,
        **labels: str,
    ) -> dict[str, float]:
        """The same for each value of one label."""
        groups: dict[str, list[float]] = {}
        for found, value, _ in self._gauges(metric, labels):
            groups.setdefault(found.get(label, ""), []).append(value)
        return {name: fold(values) for name, values in groups.items()}

    def _increases(self, metric: str, labels: Mapping[str, str]) -> "Iterator[_Found]":
        if self._counts is None:
            self._counts = _by_name(self.reports, lambda stretch: stretch.increases)
        return _matching(self._counts.get(metric, ()), labels)

    def _gauges(self, metric: str, labels: Mapping[str, str]) -> "Iterator[_Found]":
        if self._stands is None:
            self._stands = _by_name(self.reports, lambda stretch: stretch.gauges)
        return _matching(self._stands.get(metric, ()), labels)


_Found: TypeAlias = tuple[dict[str, str], float, float]
"""A sample's labels, its value, and the seconds that its process reports of."""


def _by_name(
    reports: Iterable[Report], part: Callable[[Stretch], Mapping[Series, float]]
) -> dict[str, list[_Found]]:
    found: dict[str, list[_Found]] = {}
    for report in reports:
        for (name, labels), value in part(report.stretch).items():
            found.setdefault(name, []).append((dict(labels), value, report.stretch.seconds))
    return found


def _matching(samples: Iterable[_Found], labels: Mapping[str, str]) -> Iterator[_Found]:
    wanted = {key.rstrip("_"): value for key, value in labels.items()}.items()
    return (sample for sample in samples if wanted <= sample[0].items())


def _by(label: str, found: Iterable[tuple[dict[str, str], float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, value in found:
        key = labels.get(label, "")
        sums[key] = sums.get(key, 0.0) + value
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def _quantile(buckets: list[tuple[float, float]], q: float) -> float | None:
    """buckets: (upper end, what fell into it), ascending."""
    total = sum(count for _, count in buckets)
    if not total:
        return None
    rank, low, below = q * total, 0.0, 0.0
    for top, count in buckets:
        if count and below + count >= rank:
            return low if top == inf else low + (top - low) * (rank - below) / count
        low, below = top, below + count
    return low
