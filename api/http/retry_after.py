"""Computes Retry-After."""

from jobs import clock

_LEAST_MS = 20.0


_MOST_S = 120.0


_SPREAD = 0.5
"""Those who were refused together come back over half as long again."""


_LOST_MS = 500.0


def later_s(drain_ms: float = _LOST_MS) -> float:
    """When to try again what could be let in after this time."""
    shortest_s = min(max(drain_ms, _LEAST_MS) / 1000, _MOST_S / (1 + _SPREAD))
    return shortest_s + clock.jitter(_SPREAD * shortest_s)
