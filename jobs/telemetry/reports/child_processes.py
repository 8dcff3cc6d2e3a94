"""Counter increases of a child process, added to its parent: only the parent is scraped."""

from jobs.telemetry.metrics.metrics import COUNTERS, REGISTRY
from jobs.telemetry.reports.window import Series, difference, snapshot

CounterIncreases = dict[Series, float]


class ChildCounters:
    """Counters of a child process."""

    def __init__(self) -> None:
        self._last = snapshot(REGISTRY)

    def increases(self) -> CounterIncreases:
        """Returns the increases since the last call, to be sent to the parent."""
        before, self._last = self._last, snapshot(REGISTRY)
        grown = difference(before, self._last).increases
        return {series: by for series, by in grown.items() if series[0] in COUNTERS}


def add_increases(increases: CounterIncreases) -> None:
    """Adds a child's increases to the counters of this process."""
    for (name, labels), by in increases.items():
        counter = COUNTERS[name]
        (counter.labels(**dict(labels)) if labels else counter).inc(by)
