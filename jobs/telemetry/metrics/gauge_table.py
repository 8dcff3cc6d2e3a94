"""Gauges whose label values come and go."""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import Gauge

L = TypeVar("L", bound=tuple[str, ...])


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
