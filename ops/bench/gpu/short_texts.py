"""MiniLM over texts of 15 tokens."""

from ops.bench.gpu import minilm
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

ASKED = (
    "short_whole_items_per_s >= 25000",
    "short_job_vs_bare >= 0.95",
    "short_busy_share >= 0.95",
)


def measure(report: Report, scale: Scale, device: str) -> None:
    """Measures jobs, a bare loop, and sentence-transformers."""
    minilm.measure(report, scale, device, "short_", tokens=15)
