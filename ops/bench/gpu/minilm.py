"""MiniLM over texts of 15 and of 115 tokens: jobs, a bare loop, and sentence-transformers."""

from statistics import median

from ops.bench.baselines.encoders import encoder
from ops.bench.gpu import texts
from ops.bench.gpu.target import compare, started
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

ASKED = (
    "short_whole_items_per_s >= 25000",
    "long_whole_items_per_s >= 20000",
    *(f"{length}_{limit}" for length in ("short", "long")
      for limit in ("job_vs_bare >= 0.95", "busy_share >= 0.95")),
)  # fmt: skip
_TOKENS = {"short_": 15, "long_": 115}
_TEXTS, _QUICK_TEXTS = 2000, 24


def measure(report: Report, scale: Scale, device: str) -> None:
    """Adds the rates of each length."""
    count = _QUICK_TEXTS if scale.quick else _TEXTS
    with started(device, "minilm") as target:
        for prefix, tokens in _TOKENS.items():
            some = texts.of_tokens(tokens, count)
            rate = compare(report, scale, target, some, prefix)
            with encoder(some, "sentence-transformers", device) as (_, encode):
                encode(1)  # warms up
                library = [len(some) / encode(1) for _ in range(scale.rounds)]
            report.spread(prefix, library_items_per_s=library)
            report.add(prefix, job_vs_library=rate / median(library))
