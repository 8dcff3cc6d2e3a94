"""`millrace bench generate-gpu`: a Llama of 1 B parameters and random weights in bf16, on a
platform and beside its engine driven bare.

On the CPU the model is tiny: that shows that the benchmark works, and its figures mean nothing.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs.models.model import Limits, Model
from ops.bench.baselines.generators import Order
from ops.bench.generation import chats, rates
from ops.bench.generation.target import Target, started
from ops.bench.harness import random_llama
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file
from ops.bench.harness.random_llama import ONE_B, TINY
from ops.bench.harness.repeat import repeat
from ops.bench.harness.scale import FULL, Scale
from ops.bench.probes import scrape
from ops.bench.results.plots import bars, picture
from ops.bench.results.report import Report, scenario

_NAME = "llama"
_PLACES = 64
_POLL_S = 0.25
_FULL = rates.Extent(items=1000, item_tokens=128, calls=50, call_tokens=64)
_QUICK = rates.Extent(items=64, item_tokens=64, calls=4, call_tokens=8)


@scenario(
    "generate-gpu",
    "rate_vs_bare >= 0.95",
    "ttft_overhead_ms <= 30",
    "itl_overhead_ms <= 3",
)
def run(report: Report, scale: Scale, device: str, quick: bool) -> Any:
    """Measures all. device: of torch; quick: one short run, as on the CPU."""
    on_cuda = device.startswith("cuda")
    if on_cuda:
        _check_cuda()
    size, dtype = (ONE_B, "bfloat16") if on_cuda else (TINY, "float32")
    full = on_cuda and not quick
    extent, scale = (_FULL, FULL) if full else (_QUICK, Scale(1, 1.0))
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        options = {**random_llama.save(Path(folder), size, dtype), "device": device, "threads": 1}
        models = Path(folder) / "models.toml"
        models.write_text(models_file(_model(options)))
        with started(models, _NAME, _PLACES) as target:
            found = _measure(report, scale, target, extent)
    if not full:
        return None
    figure, axes = picture(1, 5, 2.2)
    bars(axes, found, "A Llama of 1 B parameters", "tokens a second")
    return figure


def _check_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise BenchError(
            f"torch {torch.__version__} finds no CUDA device here; --device cpu runs a small trial"
        )


def _model(options: dict[str, Any]) -> Model:
    limits = Limits(max_batch=_PLACES, in_flight=1, slice_items=4 * _PLACES)
    options |= {"sequences": _PLACES, "context_tokens": 2048}
    return Model(
        _NAME, "1", "transformers", target_ttft_ms=600_000, options=options, limits=limits
    )  # refuses none


def _measure(
    report: Report, scale: Scale, target: Target, extent: rates.Extent
) -> dict[str, list[float]]:
    usage: list[float] = []

    def look() -> None:
        """Reads the share of KV blocks in use."""
        usage.append(scrape.total(target.platform, "millrace_kv_cache_usage_perc"))

    with repeat(_POLL_S, look):
        found = rates.measure_job(report, scale, target, extent)
    report.add(
        kv_blocks=scrape.total(target.platform, "millrace_kv_cache_blocks"),
        kv_usage_peak=max(usage),
    )
    _gain(report, scale, target, extent)
    rates.measure_overhead(report, scale, target, extent)
    return found


def _gain(report: Report, scale: Scale, target: Target, extent: rates.Extent) -> None:
    """Measures what streams side by side gain over one."""
    tokens = extent.item_tokens

    def rate(count: int, places: int) -> Callable[[int], float]:
        """Side of the comparison: tokens/s of so many chats."""
        return lambda _: target.bare(Order(chats.questions(count), tokens, places)).per_s

    found = scale.in_turn({"all": rate(_PLACES, _PLACES), "one": rate(2, 1)})
    report.median(tokens_per_s_of_all=found["all"], tokens_per_s_of_1=found["one"])
    figures = report.figures
    report.add(batch_gain=figures["tokens_per_s_of_all"] / figures["tokens_per_s_of_1"])
