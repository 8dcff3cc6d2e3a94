"""Metrics of routes: calls that another version answered, and copies for shadows."""

from jobs.telemetry.metrics.metrics import _counter, _section
from jobs.telemetry.metrics.record import run_later

_section("api", "routes")

FALLBACKS = _counter(
    "millrace_route_fallbacks_total{model}",
    "Calls that were routed to a version without a ready worker, and answered by another one.",
)
SHADOWS = _counter(
    "millrace_shadow_calls_total{model,shadow,outcome}",
    "Calls to be copied: equal, close (numbers within 0.1 percent), different, failed, shed.",
)


@run_later
def fell_back(model: str) -> None:
    """Counts a call whose version had no ready worker."""
    FALLBACKS.labels(model).inc()


@run_later
def shadowed(model: str, shadow: str, outcome: str) -> None:
    """Counts a call that was to be copied."""
    SHADOWS.labels(model, shadow, outcome).inc()
