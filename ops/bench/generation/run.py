"""`millrace bench generate`: text of the real model, then streams of one with a fixed pace."""

import tempfile
from pathlib import Path
from typing import Any

from ops.bench.generation import chats, endings, engine, fairness, streams
from ops.bench.harness.scale import Scale
from ops.bench.results.plots import bars, distributions, picture
from ops.bench.results.report import Report, scenario


@scenario(
    "generate",
    "exact_share >= 1",
    "preempted_items >= 1",
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
    "left_behind <= 0",
    "usage_mismatches <= 0",
    "open_stream_kb <= 64",
    "light_ttft_ratio <= 1.3",
)
def run(report: Report, scale: Scale, llamacpp: str) -> Any:
    """Measures both. llamacpp: a Python that has llama-cpp-python; empty: none."""
    ttft_ms = streams.measure(report, scale)
    endings.measure(report, scale)
    fairness.measure(report, scale)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        models = Path(folder) / "models.toml"
        models.write_text(chats.real_model())
        rates = engine.measure(report, scale, models, llamacpp)
    figure, (left, right) = picture(2, 8, 2.4)
    bars(left, rates, "smollm2: a job of chats", "tokens a second")
    distributions(right, ttft_ms, "Streams", "ms to the first token", "share of streams")
    return figure
