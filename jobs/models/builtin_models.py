"""Sample models, served where no models file is configured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.models.model import Limits, Model
from jobs.models.registry import Registry


def written_s(path: Path) -> int:
    """Returns the time at which a file was written last, s since 1970; 0: it isn't there."""
    try:
        return int(path.stat().st_mtime)
    except OSError:
        return 0


def _tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


_MODELS = (
    Model(
        "minilm",
        "1",
        "minilm",
        target_ms=250,
        limits=Limits(max_batch=64, max_tokens=512, in_flight=2, slice_items=256),
    ),
    Model("echo", "1", "echo", target_ms=50, limits=Limits(max_batch=500, window_ms=5)),
    Model(
        "batchstring",
        "1",
        "function",
        target_ms=300,  # a call that just missed a launch waits for it, and for its own
        options={"function": "workers.engines.samples:batchstring", "samples": ["a string"]},
        limits=Limits(max_batch=100),
    ),
    Model(
        "simple",
        "1",
        "tensors",
        target_ms=50,
        options={
            "function": "workers.engines.samples:sum_and_difference",
            "inputs": [_tensor(f"INPUT{n}", "INT32", -1, 16) for n in range(2)],
            "outputs": [_tensor(f"OUTPUT{n}", "INT32", -1, 16) for n in range(2)],
        },
        limits=Limits(max_batch=64, max_tokens=256, window_ms=5),
    ),
    Model(
        "image-classifier",
        "1",
        "tensors",
        target_ms=250,
        options={
            "module": "workers.engines.classifier:RandomClassifier",
            "inputs": [_tensor("image", "UINT8", -1, 64, 64, 3)],
            "outputs": [_tensor("probabilities", "FP32", -1, 10)],
        },
        limits=Limits(max_batch=32, max_tokens=32, slice_items=256, max_item_bytes=600_000),
    ),
    Model(
        "efficientnet-lite0",
        "1",
        "image_classifier",
        target_ms=500,
        on_demand=True,
        options={"builtin": "efficientnet-lite0"},
        limits=Limits(max_batch=16, in_flight=2, slice_items=256, max_item_bytes=1_400_000),
    ),
    Model(
        "smollm2",
        "1",
        "transformers",
        target_ms=5000,
        target_ttft_ms=10_000,  # a core prefills about 350 tokens a second
        on_demand=True,
        options={"builtin": "smollm2", "context_tokens": 4096},
        limits=Limits(max_batch=16, in_flight=1, slice_items=64),
    ),
)

SAMPLES = Registry([replace(model, created=written_s(Path(__file__))) for model in _MODELS])
