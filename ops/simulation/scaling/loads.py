"""Loads of the simulation: a trace, days made of its shape, a step."""

from collections.abc import Sequence
from math import cos, pi

from ops.simulation.history import Row
from ops.simulation.scaling.fluid import Load
from ops.simulation.traces import Arrival

_DAY_S = 86_400.0
_SWING = 0.7  # of a day's curve around its mean; 4 o'clock in the morning is the least


def from_arrivals(
    arrivals: Sequence[Arrival], mean: float, step_s: float = 0.5, target_s: float = 0.5
) -> Load:
    """Returns the load of a trace, whose calls are alike. mean: work in replicas."""
    work = [0.0] * (int(arrivals[-1][0] / step_s) + 1)
    each = mean * len(work) * step_s / len(arrivals)
    for at_s, _ in arrivals:
        work[int(at_s / step_s)] += each
    return Load(work, step_s, target_s)


def from_history(
    rows: Sequence[Row], mean: float | None, step_s: float = 0.5, target_s: float = 0.5
) -> Load:
    """Returns the load of a pool's history, which is even within each of its rows. mean: work in
    replicas; None: as it was."""
    first_s, end_s = rows[0].t_s, rows[-1].t_s + rows[-1].lasts_s
    work = [0.0] * round((end_s - first_s) / step_s)
    for row in rows:
        at, count = round((row.t_s - first_s) / step_s), round(row.lasts_s / step_s)
        work[at : at + count] = [row.count * step_s] * count
    load = Load(work, step_s, target_s)
    if mean is None:
        return load
    return Load([each * mean / load.mean for each in work], step_s, target_s)


def days(shape: Load, count: int, mean: float) -> Load:
    """Returns days whose mean follows a curve, and whose minutes have the shape of a trace,
    repeated."""
    step_s, scale = shape.step_s, mean / shape.mean
    work = [
        scale
        * shape.work[n % len(shape.work)]
        * (1 - _SWING * cos(2 * pi * (n * step_s / _DAY_S - 4 / 24)))
        for n in range(round(count * _DAY_S / step_s))
    ]
    return Load(work, step_s, shape.target_s)


def step(before: float, after: float, at_s: float, lasts_s: float, step_s: float = 0.5) -> Load:
    """Returns a load that is constant but for one step. before, after: work in replicas."""
    count, at = round(lasts_s / step_s), round(at_s / step_s)
    return Load([(before if n < at else after) * step_s for n in range(count)], step_s)
