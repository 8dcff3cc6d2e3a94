"""MiniLM over texts of one length: jobs, the engine in a bare loop, and sentence-transformers."""

from ops.bench.baselines.encoders import encoder
from ops.bench.gpu import texts
from ops.bench.gpu.target import compare, started
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report

_TEXTS, _QUICK_TEXTS = 2000, 24


def measure(report: Report, scale: Scale, device: str, prefix: str, tokens: int) -> None:
    """Adds the rates under the prefix."""
    some = texts.of_tokens(tokens, _QUICK_TEXTS if scale.quick else _TEXTS)
    with started(device, "minilm") as target:
        rate = compare(report, scale, target, some, prefix)
    with encoder(some, "sentence-transformers", device) as (_, encode):
        encode(1)  # warms up
        library = max(len(some) / encode(1) for _ in range(scale.rounds))
    report.add(prefix, library_items_per_s=library, job_vs_library=rate / library)
