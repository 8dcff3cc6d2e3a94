"""A process's metrics over the last minute, as plain numbers: what it reports, and `why` reads."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client import CollectorRegistry

from jobs import clock

WINDOW_S = 60.0
EVERY_S = 5.0
"""A process looks at its own metrics so often, where its window is that long."""

Labels: TypeAlias = tuple[tuple[str, str], ...]
Series: TypeAlias = tuple[str, Labels]
"""A sample's name ("millrace_calls_total", "…_bucket", …) and its labels, sorted."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """at_s: on the process's clock. counts: counters and the parts of histograms, each bucket with
    what fell into it alone; gauges: as they are."""

    at_s: float
    counts: Mapping[Series, float]
    gauges: Mapping[Series, float]


def snapshot(registry: CollectorRegistry) -> Snapshot:
    """All samples of a registry now."""
    counts: dict[Series, float] = {}
    gauges: dict[Series, float] = {}
    for metric in registry.collect():
        into = gauges if metric.type == "gauge" else counts
        below = 0.0  # what Prometheus' buckets, which come in order, have of those before
        for sample in metric.samples:
            value = sample.value
            if sample.name.endswith("_bucket"):
                value -= below
                below = 0.0 if sample.labels["le"] == "+Inf" else sample.value
            if not sample.name.endswith("_created"):
                into[sample.name, tuple(sorted(sample.labels.items()))] = value
    return Snapshot(clock.monotonic(), counts, gauges)


class Window:
    """The last `window_s` of a registry, from snapshots taken every `every_s`: twelve of them."""

    def __init__(self, registry: CollectorRegistry, window_s: float = WINDOW_S) -> None:
        self._registry, self._window_s = registry, window_s
        self.every_s = window_s * EVERY_S / WINDOW_S
        self._kept: deque[Snapshot] = deque([Snapshot(clock.monotonic(), {}, {})])

    def turn(self) -> "Stretch":
        """Takes a snapshot; what happened since the one that is `window_s` old."""
        now = snapshot(self._registry)
        self._kept.append(now)
        while len(self._kept) > 2 and self._kept[1].at_s <= now.at_s - self._window_s:
            self._kept.popleft()
        return between(self._kept[0], now)


@dataclass(frozen=True, slots=True)
class Stretch:
    """seconds: how long; increases: by how much counters grew, those that did; gauges: as they are
    at its end."""

    seconds: float
    increases: Mapping[Series, float]
    gauges: Mapping[Series, float]


def between(before: Snapshot, after: Snapshot) -> Stretch:
    """What happened from one snapshot to the next of the same process."""
    grown = (
        (series, value - before.counts.get(series, 0.0)) for series, value in after.counts.items()
    )
    increases = {series: by for series, by in grown if by > 0}
    return Stretch(after.at_s - before.at_s, increases, after.gauges)


def flat(series: Mapping[Series, float]) -> list[tuple[str, Labels, float]]:
    """As it travels."""
    return [(name, labels, value) for (name, labels), value in series.items()]


def unflat(rows: Iterable[tuple[str, Iterable[tuple[str, str]], float]]) -> dict[Series, float]:
    """From what `flat` gave, and JSON made lists of."""
    return {
        (name, tuple((key, value) for key, value in labels)): number
        for name, labels, number in rows
    }
