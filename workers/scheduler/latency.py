"""How long a launch takes: t(x) = c0 + c1 x, fitted on-line with forgetting.

x is the padded size of a launch: rows times bucket, or rows for an engine without buckets.
"""

from collections import deque
from math import ceil

_FORGET = 0.98  # weight of the past at each observation: about fifty launches count
_RATIOS = 200  # launches that the 95th percentile is taken over
_REFRESH = 10


class LatencyModel:
    """Weighted least squares over what launches took.

    Before the first observation everything is predicted to take no time.
    """

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._c0 = self._c1 = 0.0
        self._ratios: deque[float] = deque(maxlen=_RATIOS)
        self._seen = 0
        self._p95 = 1.0

    def observe(self, x: float, seconds: float) -> None:
        if self._n > 0 and (predicted := self.predict(x)) > 0:
            self._ratios.append(seconds / predicted)
        self._seen += 1
        if self._ratios and (self._seen < _REFRESH or self._seen % _REFRESH == 0):
            self._p95 = max(1.0, sorted(self._ratios)[int(0.95 * len(self._ratios))])
        self._n = self._n * _FORGET + 1
        self._x = self._x * _FORGET + x
        self._y = self._y * _FORGET + seconds
        self._xx = self._xx * _FORGET + x * x
        self._xy = self._xy * _FORGET + x * seconds
        self._fit()

    def _fit(self) -> None:
        mean_x, mean_y = self._x / self._n, self._y / self._n
        variance = self._xx / self._n - mean_x * mean_x
        covariance = self._xy / self._n - mean_x * mean_y
        # All launches of one size tell nothing of the slope: it is flat until they differ.
        slope = covariance / variance if variance > 1e-9 * max(1.0, mean_x * mean_x) else 0.0
        self._c1 = min(max(slope, 0.0), mean_y / mean_x if mean_x else 0.0)
        self._c0 = max(mean_y - self._c1 * mean_x, 0.0)

    def predict(self, x: float) -> float:
        """Seconds that a launch of padded size x takes."""
        return self._c0 + self._c1 * x

    def predict95(self, x: float) -> float:
        """Seconds that 95 of 100 such launches take at most."""
        return self.predict(x) * self._p95

    def knee(self, most_rows: int, row_size: float) -> int:
        """The fewest rows that give 90 % of the best rows per second, up to `most_rows`."""
        slope = self._c1 * row_size
        peak = most_rows / (self._c0 + slope * most_rows) if self._c0 + slope > 0 else 0.0
        if self._c0 == 0 or peak == 0:
            return 1
        return min(most_rows, max(1, ceil(0.9 * peak * self._c0 / (1 - 0.9 * peak * slope))))
