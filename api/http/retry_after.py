"""Computes Retry-After."""

from jobs import clock

_MIN_MS, _MAX_S = 20.0, 120.0
_JITTER = 0.5  #: Spreads retries over half as long again.
_DEFAULT_MS = 500.0  #: Used where the time is not known.


def retry_delay_s(drain_ms: float = _DEFAULT_MS) -> float:
    """Returns seconds after which to retry what could be admitted in `drain_ms`, with jitter."""
    shortest_s = min(max(drain_ms, _MIN_MS) / 1000, _MAX_S / (1 + _JITTER))
    return shortest_s + clock.jitter(_JITTER * shortest_s)
