"""Metrics of preparation by workers of their own, and of inputs that are fetched."""

from jobs.telemetry.metrics.metrics import _counter, _histogram, _section
from jobs.telemetry.metrics.record import run_later

_FETCH_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)

_section("worker", "preparation")

PREPARED = _counter(
    "millrace_prepared_items_total{model,store}",
    "Items prepared by workers of their own, by the store that they went to: redis, blobs.",
)
PREPARED_BYTES = _counter(
    "millrace_prepared_bytes_total{model,store}", "Bytes of these prepared inputs."
)
TAKEN = _counter(
    "millrace_prepared_taken_total{model,outcome}",
    "Items of such models that device workers took: found prepared, or absent: the device worker "
    "prepared them itself.",
)
FETCHES = _counter(
    "millrace_fetches_total{scheme,outcome}",
    "Inputs fetched from addresses: fetched, invalid, transient (tried again).",
)
FETCHED_BYTES = _counter("millrace_fetched_bytes_total{scheme}", "Bytes of fetched inputs.")
FETCH_S = _histogram("millrace_fetch_seconds{scheme}", "Time to fetch an input.", _FETCH_S)


@run_later
def stored(model: str, store: str, items: int, size: int) -> None:
    """Counts items that were prepared. model: name@version that they were prepared for; size: their
    bytes."""
    PREPARED.labels(model, store).inc(items)
    PREPARED_BYTES.labels(model, store).inc(size)


@run_later
def taken(model: str, found: int, absent: int) -> None:
    """Counts items that a device worker took, prepared or not."""
    TAKEN.labels(model, "found").inc(found)
    if absent:
        TAKEN.labels(model, "absent").inc(absent)


@run_later
def fetched(scheme: str, outcome: str, seconds: float, size: int) -> None:
    """Counts an input that was fetched, or not. size: its bytes."""
    FETCHES.labels(scheme, outcome).inc()
    FETCH_S.labels(scheme).observe(seconds)
    FETCHED_BYTES.labels(scheme).inc(size)
