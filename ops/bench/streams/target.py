"""Target of the parts: a small model of random weights, with two adapters, on two apis and two
workers."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.models.adapters import Adapter
from jobs.models.model import Limits, Model
from ops.bench.chaos.fleet import Fleet
from ops.bench.chaos.serving import serving_fleet
from ops.bench.harness import random_adapters, random_llama
from ops.bench.harness.models_files import models_file
from ops.bench.harness.random_llama import TINY

NAME = "tiny"
ADAPTERS = ("legal", "support")
PLACES = 256  # sequences of a worker: each can take all streams of both


def tiny_model(
    folder: Path, name: str = NAME, adapters: Sequence[str] = (), **options: Any
) -> Model:
    """Saves a Llama of random weights in fp32 and adapters of it, and returns its entry. options:
    further ones of its engine."""
    saved: Mapping[str, Any] = random_llama.save(folder, TINY, "float32")
    return Model(
        name, "1", "transformers",
        target_ttft_ms=600_000,  # refuses none
        target_itl_ms=10_000,
        options={**saved, "device": "cpu", "threads": 1, "sequences": PLACES, **options},
        limits=Limits(max_batch=PLACES, in_flight=1, slice_items=PLACES),
        adapters=tuple(_saved_adapter(folder, one, n) for n, one in enumerate(adapters)),
    )  # fmt: skip


def _saved_adapter(base: Path, name: str, seed: int) -> Adapter:
    shapes = random_adapters.llama_shapes(base)
    return random_adapters.declared(random_adapters.save(base / name, shapes, seed=seed))


@contextmanager
def streaming_fleet(*models: Model) -> Iterator[Fleet]:
    """Starts a fleet that serves these models; none: the tiny one with its adapters. Returns once
    all workers are ready for those that aren't loaded on demand."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        served = models or (tiny_model(Path(folder), adapters=ADAPTERS),)
        loaded = [model.key for model in served if not model.on_demand]
        with serving_fleet(models_file(*served), loaded) as fleet:
            yield fleet
