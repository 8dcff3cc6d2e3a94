"""Formulas of figures that are more than a percentile."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ops.bench.load.open_loop import Calls

#: Row a round; the sides of a round are measured within a second or two.
Column = NDArray[np.float64]

_RESAMPLED = 2000


def highest(holds: Callable[[int], bool], steps: Sequence[int], first: int) -> int:
    """Highest step that holds: searched upwards from the first one, else downwards; 0: none."""
    held = 0
    for step in steps[steps.index(first) :]:
        if not holds(step):
            break
        held = step
    below = (step for step in reversed(steps) if step < first)
    return held or next((step for step in below if holds(step)), 0)


def slots_left(calls_per_s: float, replicas: int, max_batch: int, launch_s: float) -> float:
    """Share of row slots that calls leave to a job.

    replicas * max_batch / launch_s slots pass a second, and each call takes one.
    """
    return 1 - calls_per_s * launch_s / (replicas * max_batch)


def goodput_per_s(calls: Calls, target_ms: float) -> float:
    """Right responses within the target, a second of the load."""
    return float(calls.in_time(target_ms).sum() / (calls.due_s[-1] - calls.due_s[0]))


def mean_launch(calls: Calls) -> float:
    """Calls a launch: each call is 1/n of its launch of n."""
    sizes = calls.batch_size[calls.right]
    return float(len(sizes) / (1 / sizes).sum())


def padding_share(calls: Calls) -> float:
    """Padded units over all computed units.

    Each call has the share of its launch, so it stands for units / (1 - share); without one its
    launch had no padding.
    """
    units, share = calls.units[calls.right], np.nan_to_num(calls.padding[calls.right])
    return float(1 - units.sum() / (units / (1 - share)).sum())


def predict_error(calls: Calls) -> float | None:
    """Median over launches of |predicted / actual - 1|; None without predictions.

    Calls with the same times are of one launch.
    """
    known = calls.right & ~np.isnan(calls.predicted_ms)
    times = np.column_stack([calls.predicted_ms[known], calls.engine_ms[known]])
    if not len(times):
        return None
    launches = np.unique(times, axis=0)
    return float(np.median(np.abs(launches[:, 0] / launches[:, 1] - 1)))


def flush_shares(calls: Calls) -> dict[str, float]:
    """Share of launches by flush reason; each call is 1/n of its launch of n."""
    flush, weights = calls.flush[calls.right], 1 / calls.batch_size[calls.right]
    return {
        str(reason): float(weights[flush == reason].sum() / weights.sum())
        for reason in np.unique(flush)
    }


def points_apart(some: Mapping[str, float], others: Mapping[str, float]) -> float:
    """Largest difference between two shares of the same reason, in percentage points."""
    return max(100 * abs(some.get(r, 0) - others.get(r, 0)) for r in some.keys() | others.keys())


def jain(amounts: Sequence[float]) -> float | None:
    """Jain's index, (Σx)² / (n·Σx²): 1 for equal amounts, 1/n where one has all; None for zeros.

    R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness", 1984.
    """
    squares = sum(amount**2 for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else None


def share_error(amounts: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """Largest relative difference between a share and that by weight; None for zeros."""
    whole, heavy = sum(amounts.values()), sum(weights.values())
    if not whole:
        return None
    return max(
        abs(amounts.get(name, 0.0) / whole / (weight / heavy) - 1)
        for name, weight in weights.items()
    )


def interval(
    cost: Callable[[Column, Column], float], off: Column, on: Column
) -> tuple[float, float]:
    """95 % confidence interval of a cost, by the bootstrap over rounds.

    B. Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979.
    """
    draws = np.random.default_rng(0).integers(len(off), size=(_RESAMPLED, len(off)))
    low, high = np.percentile([cost(off[draw], on[draw]) for draw in draws], [2.5, 97.5])
    return float(low), float(high)
