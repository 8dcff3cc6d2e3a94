"""Gauges whose labels come and go."""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import Gauge

L = TypeVar("L", bound=tuple[str, ...])


class Table:
    """Each `set` says all there is: what is there no more has no sample any more."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._known: set[tuple[str, ...]] = set()

    def set(self, values: Mapping[L, float]) -> None:
        for labels, value in values.items():
            self._gauge.labels(*labels).set(value)
        for gone in self._known - values.keys():
            self._gauge.remove(*gone)
        self._known = set(values)
