"""Metrics of adapters in a worker's slots."""

from jobs.telemetry.metrics.metrics import _counter, _gauge, _histogram, _section
from jobs.telemetry.metrics.record import run_later

_LOAD_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_section("worker", "adapters")

LOADS = _counter("millrace_adapter_loads_total{model,outcome}", "Loads of adapters: ready, failed.")
LOAD_S = _histogram("millrace_adapter_load_seconds{model}", "Time to load an adapter.", _LOAD_S)
EVICTIONS = _counter(
    "millrace_adapter_evictions_total{model}", "Adapters that left their slot to another."
)
SLOTS_USED = _gauge("millrace_adapter_slots_used{model}", "Slots that hold an adapter.")


@run_later
def loaded(model: str, outcome: str, seconds: float, evicted: int, used: int) -> None:
    """Counts a load, and the adapters evicted since the one before. used: slots with an adapter."""
    LOADS.labels(model, outcome).inc()
    if outcome == "ready":
        LOAD_S.labels(model).observe(seconds)
    if evicted:
        EVICTIONS.labels(model).inc(evicted)
    SLOTS_USED.labels(model).set(used)
