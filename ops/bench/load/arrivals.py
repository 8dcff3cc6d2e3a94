"""When calls are due: at random, or as they once arrived at a real service."""

import csv
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np


def poisson(per_s: float, seconds: float, seed: int) -> list[float]:
    """Due times of a Poisson process of this rate, seconds from 0, in order."""
    gaps = np.random.default_rng(seed).exponential(1 / per_s, int(2 * per_s * seconds) + 100)
    times = np.cumsum(gaps)
    return [float(time) for time in times[times < seconds]]


def trace(path: Path) -> list[float]:
    """Arrival times of a trace of Azure's, seconds since the first one: its column is `t_s`
    (seconds) or `TIMESTAMP`."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        if "t_s" in (rows.fieldnames or ()):
            times = sorted(float(row["t_s"]) for row in rows)
        else:
            times = sorted(_seconds(row["TIMESTAMP"]) for row in rows)
    return [time - times[0] for time in times]


def compressed(times: Sequence[float], per_s: float) -> list[float]:
    """The same arrivals in another time, so that their mean rate is per_s."""
    factor = len(times) / per_s / times[-1]
    return [time * factor for time in times]


def after(warm_up: Iterable[float], seconds: float, times: Iterable[float]) -> list[float]:
    """warm_up, all of it within so many seconds, and then the times."""
    return [*warm_up, *(seconds + time for time in times)]


def _seconds(timestamp: str) -> float:
    """Azure writes seven digits of a second; six are all that Python reads."""
    return datetime.fromisoformat(f"{timestamp[:26]}+00:00").timestamp()
