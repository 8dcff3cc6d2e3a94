"""An encoder of BERT-large's size over texts of mixed length, and how much of the card it uses."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.models.model import Model
from ops.bench.gpu import texts
from ops.bench.gpu.target import compare, started
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from workers.engines.encoder import RandomEncoder
from workers.engines.encoders.tokenize import Texts
from workers.engines.flops import peak_tflops
from workers.engines.protocol import Prepared

ASKED = (
    "encoder_job_vs_bare >= 0.95",
    "encoder_busy_share >= 0.95",
    "encoder_peak_share >= 0.40",
)
_TEXTS, _QUICK_TEXTS = 2000, 24


def measure(report: Report, scale: Scale, device: str) -> None:
    """Measures jobs and a bare loop, and the share of the card's peak."""
    some = texts.of_any_length(_QUICK_TEXTS if scale.quick else _TEXTS)
    with started(device, "encoder") as target:
        rate = compare(report, scale, target, some, "encoder_")
    used = rate * _mean_flops(target.model, some) / 1e12
    report.add(encoder_tflops=used)
    if peak := _peak_tflops(device):
        report.add(encoder_peak_share=used / peak)
    else:
        report.leave_out("encoder_peak_share", "the peak of this device isn't known")


def _mean_flops(model: Model, some: Sequence[str]) -> float:
    """Returns the floating-point operations of a text: two for each product of a weight, and of a
    query, key or value in attention."""
    shape = _shape(model.options)
    hidden, layers, between = shape["hidden"], shape["layers"], shape["intermediate"]
    entries = Texts(model.spec.longest(model.options)).prepare(some, {})
    lengths = [entry.size for entry in entries if isinstance(entry, Prepared)]
    products = 4 * hidden * hidden + 2 * hidden * between  # of weights, a token and layer
    total = sum(2 * n * layers * (products + 2 * n * hidden) for n in lengths)
    return total / len(lengths)


def _shape(options: Mapping[str, Any]) -> dict[str, int]:
    """Returns hidden, layers and intermediate: those of the entry, else the engine's own."""
    own = inspect.signature(RandomEncoder).parameters
    return {
        name: options.get(name, own[name].default) for name in ("hidden", "layers", "intermediate")
    }


def _peak_tflops(device: str) -> float:
    """Returns the peak of the card; 0 where it isn't known."""
    import torch

    return peak_tflops(torch.cuda.get_device_name(device)) if device.startswith("cuda") else 0.0
