"""What several pictures have in common."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ops.bench.load.open_loop import Calls, Column

TARGET_COLOUR = "#de2d26"
_SHARES = np.concatenate([np.arange(0, 99, 0.5), np.arange(99, 100.01, 0.05)]).clip(0, 100)


def latencies(runs: Iterable[Calls]) -> Column:
    """Of the right answers of all runs, ms."""
    return np.concatenate([calls.latency_ms[calls.right] for calls in runs])


def shares(axes: Any, ms: Column, label: str, colour: str | None = None) -> None:
    """Which share of calls took no longer than so much; the same number of points however many
    calls there were."""
    axes.plot(np.percentile(ms, _SHARES), _SHARES / 100, label=label, color=colour)
    axes.set_xlabel("ms from the due time")
    axes.set_ylabel("share of calls")
