"""Metrics of a process over the last minute, as plain numbers."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from prometheus_client import CollectorRegistry

from jobs import clock

WINDOW_S = 60.0
EVERY_S = 5.0  # between two snapshots of a window of WINDOW_S
RECENT_S = 10.0  # of a window of WINDOW_S, for counters that decisions can't wait a minute for
_RECENT = {
    "millrace_calls_total",
    "millrace_call_target_total",
    "millrace_device_busy_seconds_total",
    "millrace_http_requests_total",
}

Labels: TypeAlias = tuple[tuple[str, str], ...]
Series: TypeAlias = tuple[str, Labels]
"""A sample's name ("millrace_calls_total", "…_bucket", …) and its labels, sorted."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Samples of a registry at one time."""

    at_s: float  #: on the process's clock
    counts: Mapping[Series, float]  #: counters and histograms; buckets aren't cumulative
    gauges: Mapping[Series, float]


def snapshot(registry: CollectorRegistry) -> Snapshot:
    """Returns all samples of a registry."""
    counts: dict[Series, float] = {}
    gauges: dict[Series, float] = {}
    for metric in registry.collect():
        into = gauges if metric.type == "gauge" else counts
        below = 0.0  # Prometheus' buckets are cumulative and in order
        for sample in metric.samples:
            value = sample.value
            if sample.name.endswith("_bucket"):
                value -= below
                below = 0.0 if sample.labels["le"] == "+Inf" else sample.value
            if not sample.name.endswith("_created"):
                into[sample.name, tuple(sorted(sample.labels.items()))] = value
    return Snapshot(clock.monotonic(), counts, gauges)


class Window:
    """Sliding window over the last `window_s` of a registry, of twelve snapshots."""

    def __init__(self, registry: CollectorRegistry, window_s: float = WINDOW_S) -> None:
        self._registry, self._window_s = registry, window_s
        self.every_s = window_s * EVERY_S / WINDOW_S
        self._snapshots: deque[Snapshot] = deque([Snapshot(clock.monotonic(), {}, {})])

    def advance(self) -> "WindowDelta":
        """Takes a snapshot and returns the change since the one that is `window_s` old."""
        now = snapshot(self._registry)
        self._snapshots.append(now)
        while len(self._snapshots) > 2 and self._snapshots[1].at_s <= now.at_s - self._window_s:
            self._snapshots.popleft()
        return replace(difference(self._snapshots[0], now), recent=self._recent(now))

    def _recent(self, now: Snapshot) -> "Recent":
        since_s = now.at_s - self._window_s * RECENT_S / WINDOW_S
        before = [one for one in self._snapshots if one.at_s <= since_s] or [self._snapshots[0]]
        change = difference(before[-1], now)
        few = {series: by for series, by in change.increases.items() if series[0] in _RECENT}
        return Recent(change.seconds, few)


@dataclass(frozen=True, slots=True)
class Recent:
    """Change of a few counters over the last RECENT_S."""

    seconds: float = 0.0  #: length of that time
    increases: Mapping[Series, float] = field(default_factory=dict)  #: of those that grew


@dataclass(frozen=True, slots=True)
class WindowDelta:
    """Change of a process's metrics over a window."""

    seconds: float  #: length of the window
    increases: Mapping[Series, float]  #: of the counters that grew
    gauges: Mapping[Series, float]  #: at its end
    recent: Recent = Recent()  #: its end


def difference(before: Snapshot, after: Snapshot) -> WindowDelta:
    """Returns the change between two snapshots of the same process."""
    grown = (
        (series, value - before.counts.get(series, 0.0)) for series, value in after.counts.items()
    )
    increases = {series: by for series, by in grown if by > 0}
    return WindowDelta(after.at_s - before.at_s, increases, after.gauges)


def to_rows(series: Mapping[Series, float]) -> list[tuple[str, Labels, float]]:
    """Returns the series as lists for JSON."""
    return [(name, labels, value) for (name, labels), value in series.items()]


def from_rows(rows: Iterable[tuple[str, Iterable[tuple[str, str]], float]]) -> dict[Series, float]:
    """Parses what `to_rows` returned."""
    return {
        (name, tuple((key, value) for key, value in labels)): number
        for name, labels, number in rows
    }
