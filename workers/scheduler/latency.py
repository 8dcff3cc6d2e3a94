"""Prediction of launch times: t = c0 + c1 rows + c2 units + c3 Σ size², fitted on-line.

Relative least squares with forgetting, no coefficient below zero, and a correction for each bucket
that follows faster. The measurements of the warm-up sweep keep a small weight: a model that sees
launches of one size only must still predict others.
"""

from collections import deque
from collections.abc import Sequence
from math import ceil

from workers.scheduler.cost import LaunchSize

_FORGET = 0.98  # weight of the past at each observation: about fifty launches count
_SEED = 10.0  # weight of the warm-up sweep, in launches
_FOLLOW = 0.1  # weight of a launch in the correction of its bucket
_CORRECTION = (0.5, 2.0)
_RATIOS = 200  # launches behind the 95th percentile
_REFRESH = 8
_RIDGE = 1e-6
_SHORTEST_S = 1e-6
_NUMBERS = 4

Matrix = list[list[float]]


class LatencyModel:
    """Latency model of one engine; predicts 0 before the first observation."""

    def __init__(self) -> None:
        self._seed, self._recent = _Sums(), _Sums()
        self._c = [0.0] * _NUMBERS
        self._corrections: dict[int, float] = {}
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self.launches = 0  #: observed, without those of the warm-up sweep
        self.p95_ratio = 1.0  #: actual over predicted time that 95 % don't exceed

    def seed(self, sweep: Sequence[tuple[LaunchSize, float]]) -> None:
        """Adds launches measured by the warm-up sweep, with the seconds that they took."""
        for work, seconds in sweep:
            self._seed.add(work, seconds, 1.0)
        self._seed.scale(_SEED / max(1, len(sweep)))
        self._fit()

    def observe(self, work: LaunchSize, seconds: float) -> None:
        """Adds a launch that took `seconds`."""
        seconds = max(seconds, _SHORTEST_S)
        if (predicted := self.predict(work)) > 0:
            self._ratios.append(seconds / predicted)
            self._correct(work, seconds)
        self._recent.add(work, seconds, _FORGET)
        self.launches += 1
        if self.launches < 2 * _REFRESH or self.launches % _REFRESH == 0:
            self._fit()
            ratios = sorted(self._ratios) or [1.0]
            self.p95_ratio = max(1.0, ratios[int(0.95 * len(ratios))])

    def predict(self, work: LaunchSize) -> float:
        """Predicts the seconds of a launch."""
        return self._base(work) * self._corrections.get(work.bucket, 1.0)

    def predict95(self, work: LaunchSize) -> float:
        """Predicts the seconds that 95 % of such launches take at most."""
        return self.predict(work) * self.p95_ratio

    def knee(self, most_rows: int, row: LaunchSize) -> int:
        """Returns the fewest equal rows that give 90 % of the best rows per second, up to
        `most_rows`."""
        fixed, slope = self._c[0], self._base(row) - self._c[0]
        peak = most_rows / (fixed + slope * most_rows) if fixed + slope > 0 else 0.0
        if fixed == 0 or peak == 0:
            return 1
        return min(most_rows, max(1, ceil(0.9 * peak * fixed / (1 - 0.9 * peak * slope))))

    def _base(self, work: LaunchSize) -> float:
        fixed, row, unit, square = self._c
        return fixed + row * work.rows + unit * work.units + square * work.squares

    def _correct(self, work: LaunchSize, seconds: float) -> None:
        before = self._corrections.get(work.bucket, 1.0)
        measured = seconds / self._base(work)
        after = before + _FOLLOW * (measured - before)
        self._corrections[work.bucket] = min(max(after, _CORRECTION[0]), _CORRECTION[1])

    def _fit(self) -> None:
        self._c = _not_negative(*self._seed.plus(self._recent))


class _Sums:
    """Normal equations of weighted least squares: Σ w x xᵀ and Σ w x t, with w = 1 / t²."""

    def __init__(self) -> None:
        self.xx: Matrix = [[0.0] * _NUMBERS for _ in range(_NUMBERS)]
        self.xt = [0.0] * _NUMBERS

    def add(self, work: LaunchSize, seconds: float, keep: float) -> None:
        """Adds a launch; `keep` is the weight of those before."""
        scaled = [x / max(seconds, _SHORTEST_S) for x in _numbers(work)]
        for row, a in zip(self.xx, scaled, strict=True):
            row[:] = [keep * old + a * b for old, b in zip(row, scaled, strict=True)]
        self.xt = [keep * old + a for old, a in zip(self.xt, scaled, strict=True)]

    def scale(self, factor: float) -> None:
        """Multiplies all weights."""
        self.xx = [[factor * x for x in row] for row in self.xx]
        self.xt = [factor * x for x in self.xt]

    def plus(self, other: "_Sums") -> tuple[Matrix, list[float]]:
        """Returns the sums of both."""
        pairs = zip(self.xx, other.xx, strict=True)
        xx = [[a + b for a, b in zip(*rows, strict=True)] for rows in pairs]
        return xx, [a + b for a, b in zip(self.xt, other.xt, strict=True)]


def _numbers(work: LaunchSize) -> tuple[float, float, float, float]:
    return 1.0, work.rows, work.units, work.squares


def _not_negative(xx: Matrix, xt: list[float]) -> list[float]:
    """Solves for the coefficients that come out above zero; the others are zero. What equal
    launches leave undetermined goes to c0, which alone isn't regularized."""
    terms = [n for n in range(_NUMBERS) if xx[n][n] > 0]
    while terms:
        solution = _solve(xx, xt, terms)
        least = min(range(len(terms)), key=lambda n: solution[n] * xx[terms[n]][terms[n]] ** 0.5)
        if solution[least] >= 0:
            c = [0.0] * _NUMBERS
            for n, value in zip(terms, solution, strict=True):
                c[n] = value
            return c
        del terms[least]
    return [0.0] * _NUMBERS


def _solve(xx: Matrix, xt: list[float], terms: list[int]) -> list[float]:
    """Solves by Gaussian elimination, scaled so that the diagonal is 1."""
    scale = [xx[n][n] ** 0.5 for n in terms]
    rows = [
        [xx[a][b] / (scale[i] * scale[j]) for j, b in enumerate(terms)] + [xt[a] / scale[i]]
        for i, a in enumerate(terms)
    ]
    for i, n in enumerate(terms):
        rows[i][i] += _RIDGE if n else 0.0
    for i, pivot in enumerate(rows):
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    solution = [0.0] * len(terms)
    for i in reversed(range(len(terms))):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, len(terms)))
        solution[i] = (rows[i][-1] - known) / rows[i][i]
    return [value / s for value, s in zip(solution, scale, strict=True)]
