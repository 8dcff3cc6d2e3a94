"""Cost of the canary over that of its control: asymptotic confidence sequence of the ratio.

By the delta method the logarithm of the ratio of two means has the variance v = s₁²/(n₁ m₁²) +
s₂²/(n₂ m₂²). Robbins' normal mixture: with prior variance κ and V = 1/v the interval
log(m₁/m₂) ± √(v · (1 + 1/(Vκ)) · (log(1 + Vκ) + 2 log(1/α))) holds at all times at once with
probability 1 - α, as n grows.

Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic
confidence sequences", 2024.
"""

from collections import deque
from collections.abc import Collection
from copy import copy
from dataclasses import dataclass
from math import exp, inf, log, sqrt

LEAST = 100
"""Observations of each lane before there is an interval."""

_PRIOR = 0.15**2  # κ: the interval is narrowest for ratios of about 1.15 to 1.2
_KEPT = 2000  # values of the control behind the limit of outliers
_REFRESH = 100
_OUTLIER, _TIMES = 0.999, 3.0  # beyond so many times this quantile: a dearer version is below


@dataclass(frozen=True, slots=True)
class Interval:
    """Ratio of the canary's mean cost to the control's, with its bounds."""

    ratio: float
    low: float
    high: float
    canary: float  #: mean of each lane
    control: float

    def __str__(self) -> str:
        return f"{self.ratio - 1:+.1%} ({self.low - 1:+.1%} to {self.high - 1:+.1%})"


class Quantiles:
    """Quantiles of the control's last values, as they were a while ago: the values that are
    compared with them have no part in them."""

    def __init__(self, shares: tuple[float, ...], kept: int, least: int = LEAST) -> None:
        self._shares, self._least = shares, least
        self._values: deque[float] = deque(maxlen=kept)
        self._seen, self._next = 0, least
        self.values: tuple[float, ...] | None = None  #: one a share; None while few were seen

    def add(self, value: float) -> None:
        """Adds a value of the control."""
        self._values.append(value)
        self._seen += 1
        if self._seen >= self._next:
            self._next = self._seen + min(_REFRESH, self._seen)
            ordered = sorted(self._values)
            last = len(ordered) - 1
            self.values = tuple(ordered[min(last, int(q * len(ordered)))] for q in self._shares)


class CostRatio:
    """Ratio of the costs of two lanes. Values beyond three times the control's p99.9 count as
    that."""

    def __init__(self) -> None:
        self._limit = Quantiles((_OUTLIER,), _KEPT)
        self._lanes = {True: _Mean(), False: _Mean()}
        self._units: dict[bool, dict[str, _Mean]] = {True: {}, False: {}}

    def add(self, value: float, *, canary: bool, unit: str = "") -> None:
        """Adds the cost of a launch. unit: caller whose launches count as one observation, their
        mean; "": each launch is one."""
        value = min(value, _TIMES * self._limit.values[0] if self._limit.values else inf)
        if not canary:
            self._limit.add(value)
        if unit:
            self._units[canary].setdefault(unit, _Mean()).add(value)
        else:
            self._lanes[canary].add(value)

    def keep(self, units: Collection[str]) -> None:
        """Forgets all other callers."""
        for canary, means in self._units.items():
            self._units[canary] = {unit: mean for unit, mean in means.items() if unit in units}

    def interval(self, alpha: float) -> Interval | None:
        """Returns the interval, each of whose bounds holds at all times with probability 1 - alpha;
        None while a lane has few observations."""
        ours, theirs = self._mean(True), self._mean(False)
        if min(ours.n, theirs.n) < LEAST or min(ours.mean, theirs.mean) <= 0:
            return None
        middle = log(ours.mean / theirs.mean)
        half = _half_width(ours.relative_variance + theirs.relative_variance, 2 * alpha)
        bounds = exp(middle), exp(middle - half), exp(middle + half)
        return Interval(*bounds, ours.mean, theirs.mean)

    def _mean(self, canary: bool) -> "_Mean":
        if not self._units[canary]:
            return self._lanes[canary]
        summed = copy(self._lanes[canary])
        for unit in self._units[canary].values():
            summed.add(unit.mean)
        return summed


class _Mean:
    """Mean and variance, by Welford's updates."""

    __slots__ = ("_squares", "mean", "n")

    def __init__(self) -> None:
        self.n, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self._squares += before * (value - self.mean)

    @property
    def relative_variance(self) -> float:
        """Variance of the mean over the square of the mean."""
        return self._squares / (self.n - 1) / self.n / self.mean**2


def _half_width(variance: float, alpha: float) -> float:
    """Half the width of the two-sided interval of a mean with this variance."""
    if variance <= 0:
        return 0.0
    mixed = _PRIOR / variance
    return sqrt(variance * (1 + 1 / mixed) * (log(1 + mixed) + 2 * log(1 / alpha)))
