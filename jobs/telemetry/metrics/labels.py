"""Label values that clients choose, which are limited, and those that come and go."""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import Gauge

OTHER = "other"

L = TypeVar("L", bound=tuple[str, ...])


class LabelLimit:
    """Keeps the first `most` values; every later one shares the series OTHER."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


class GaugeTable:
    """Gauge whose series are replaced as a whole."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._known: set[tuple[str, ...]] = set()

    def set(self, values: Mapping[L, float]) -> None:
        """Sets the series to `values`, by label values, and removes all others."""
        for labels, value in values.items():
            self._gauge.labels(*labels).set(value)
        for old in self._known - values.keys():
            self._gauge.remove(*old)
        self._known = set(values)
