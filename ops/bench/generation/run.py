"""`millrace bench generate`: text of the real model, then streams of one with a fixed pace."""

import tempfile
from pathlib import Path
from typing import Any

from ops.bench.generation import chats, engine, streams
from ops.bench.harness.scale import Scale
from ops.bench.results.plots import bars, picture
from ops.bench.results.report import Report, scenario


@scenario(
    "generate",
    "exact_share >= 1",
    "seeded_share >= 1",
    "rate_vs_bare >= 0.95",
    "batch_gain >= 4",
    "long_context_gain >= 1.7",
    "ttft_overhead_ms <= 30",
    "itl_overhead_ms <= 3",
    "cpu_ms_per_token <= 0.1",
    "ttft_p95_ratio <= 1.25",
    "itl_p95_ratio <= 1.25",
    "items_ratio >= 0.7",
    "cancel_steps <= 2",
    "open_stream_kb <= 64",
    "light_ttft_ratio <= 1.3",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures both."""
    streams.measure(report, scale)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        models = Path(folder) / "models.toml"
        models.write_text(chats.real_model())
        rates = engine.measure(report, scale, models)
    figure, axes = picture(1, 5, 2.2)
    bars(axes, rates, "A job of chats, and its engine alone", "tokens a second")
    return figure
