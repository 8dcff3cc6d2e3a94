"""Figures of one lane by itself, for people: guardrails compare lanes."""

from collections import deque
from collections.abc import Collection
from typing import Any

from jobs.rollouts import share
from jobs.rollouts.records import LaunchRecord

_KEPT, _LEAST = 1000, 20  # values behind quantiles


class LaneFigures:
    """Sums over the launches of a lane; where callers are sticky, its observations are callers."""

    def __init__(self) -> None:
        self._launches, self._failed = 0, 0
        self._units, self._failed_units = set[str](), set[str]()
        self._calls, self._device_ms, self._price = 0, 0.0, 0.0
        self._times = {
            name: deque[float](maxlen=_KEPT) for name in ("latency_ms", "ttft_ms", "itl_ms")
        }

    def add(self, record: LaunchRecord) -> None:
        """Adds a launch, or a caller's part of it."""
        self._launches += 1
        self._failed += record.failed > 0
        if record.unit:
            self._units.add(record.unit)
            if record.failed:
                self._failed_units.add(record.unit)
        if record.failed >= record.calls:
            return
        self._calls += record.calls
        self._device_ms += record.device_ms if record.launches else 0.0
        self._price += record.price
        for name, values in self._times.items():
            if (value := getattr(record, name)) > 0:
                values.append(value)

    def keep(self, units: Collection[str]) -> None:
        """Forgets all other callers."""
        self._units.intersection_update(units)
        self._failed_units.intersection_update(units)

    def as_json(self, alpha: float) -> dict[str, Any]:
        """Returns what is known: `failed_share`, of launches or callers, with bounds that hold at
        all times with probability 1 - alpha; `latency_ms`, `ttft_ms`, `itl_ms`: p50 and p95;
        `device_ms` and `price` of a call."""
        events, count = self._failed, self._launches
        if self._units:
            events, count = len(self._failed_units), len(self._units)
        found: dict[str, Any] = {
            name: _quantiles(values)
            for name, values in self._times.items()
            if len(values) >= _LEAST
        }
        if count:
            bounds = share.interval(events, count, alpha)
            found["failed_share"] = [round(x, 6) for x in (events / count, *bounds)]
        means = {"device_ms": self._device_ms, "price": self._price}
        return found | {
            name: float(f"{total / self._calls:.4g}") for name, total in means.items() if total
        }


def _quantiles(values: deque[float]) -> list[float]:
    """Returns p50 and p95."""
    ordered = sorted(values)
    return [round(ordered[int(q * (len(ordered) - 1))], 3) for q in (0.5, 0.95)]
