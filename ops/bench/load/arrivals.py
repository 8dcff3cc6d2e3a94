"""Due times of calls: random, or those of a trace."""

from collections.abc import Iterable, Sequence

import numpy as np


def poisson(per_s: float, seconds: float, seed: int) -> list[float]:
    """Due times of a Poisson process of this rate, seconds from 0, in order."""
    gaps = np.random.default_rng(seed).exponential(1 / per_s, int(2 * per_s * seconds) + 100)
    times = np.cumsum(gaps)
    return [float(time) for time in times[times < seconds]]


def compressed(times: Sequence[float], per_s: float) -> list[float]:
    """Arrivals scaled in time to a mean rate of per_s."""
    factor = len(times) / per_s / times[-1]
    return [time * factor for time in times]


def after(warm_up: Iterable[float], seconds: float, times: Iterable[float]) -> list[float]:
    """Due times of a warm-up of so many seconds, followed by the times."""
    return [*warm_up, *(seconds + time for time in times)]
