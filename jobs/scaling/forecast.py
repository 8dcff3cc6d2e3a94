"""Forecast of a pool's work from its own arrivals: a quantile of the same time on earlier days."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

BIN_S = 300  # mean work is kept for each
DAYS = 14  # before the present one that count
MIN_DAYS = 2  # with arrivals at that time, before there is a forecast
_DAY = 86_400 // BIN_S


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Work that calls brought, in replicas, by bin: Unix time over BIN_S."""

    work: Mapping[int, float] = field(default_factory=dict)

    def forecast(self, at_s: float, ahead_s: float, quantile: float) -> float | None:
        """Returns the quantile over earlier days of the most work from now until ahead_s later;
        None where too few days are known."""
        first, last = int(at_s // BIN_S), int((at_s + ahead_s) // BIN_S)
        days = [
            [
                self.work[n - day * _DAY]
                for n in range(first, last + 1)
                if n - day * _DAY in self.work
            ]
            for day in range(1, DAYS + 1)
        ]
        peaks = sorted(max(day) for day in days if day)
        if len(peaks) < MIN_DAYS:
            return None
        return peaks[min(len(peaks), max(1, ceil(quantile * len(peaks)))) - 1]
