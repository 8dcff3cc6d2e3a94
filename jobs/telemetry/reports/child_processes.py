"""What a child process counted, told to its parent: only that one is asked for metrics."""

from jobs.telemetry.metrics.metrics import COUNTERS, REGISTRY
from jobs.telemetry.reports.window import Series, between, snapshot

Counted = dict[Series, float]


class ChildReports:
    """The child's side: what it counted since it said so last."""

    def __init__(self) -> None:
        self._last = snapshot(REGISTRY)

    def news(self) -> Counted:
        before, self._last = self._last, snapshot(REGISTRY)
        grown = between(before, self._last).increases
        return {series: by for series, by in grown.items() if series[0] in COUNTERS}


def add(counted: Counted) -> None:
    """The parent's side."""
    for (name, labels), by in counted.items():
        counter = COUNTERS[name]
        (counter.labels(**dict(labels)) if labels else counter).inc(by)
