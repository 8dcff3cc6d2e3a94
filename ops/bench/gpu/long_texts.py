"""MiniLM over texts of 115 tokens."""

from ops.bench.gpu import minilm
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

ASKED = (
    "long_whole_items_per_s >= 20000",
    "long_job_vs_bare >= 0.95",
    "long_busy_share >= 0.95",
)


def measure(report: Report, scale: Scale, device: str) -> None:
    """Measures jobs, a bare loop, and sentence-transformers."""
    minilm.measure(report, scale, device, "long_", tokens=115)
