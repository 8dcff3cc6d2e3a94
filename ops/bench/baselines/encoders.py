"""Encoders without the platform, each in a process: a bare loop of an engine over length-sorted
launches, and `encode` of sentence-transformers.

`python -m ops.bench.baselines.encoders KIND …` reads JSON lines: texts, answered with the device's
name; then numbers of rounds, each answered with its seconds.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from jobs import clock
from jobs.calls.lanes import bucket_of
from jobs.models import models_file
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.input_size import minilm_folder
from jobs.models.model import Model
from ops.bench.harness.child_process import answer_lines, child
from workers.engines.protocol import Engine, Prepared
from workers.scheduler.snapshot import Rules

_BATCH, _CUDA_BATCH = 32, 512  # of sentence-transformers: its default, and what suits a GPU

#: Runs the texts so many times over; returns seconds.
Run = Callable[[int], float]


@contextmanager
def encoder(texts: Sequence[str], *arguments: str) -> Iterator[tuple[str, Run]]:
    """Starts an encoder of these texts. Yields (device, a function that runs them).

    arguments: "bare", a models file (empty: the samples), a model; or "sentence-transformers" and a
    device (default: CUDA where there is one).
    A bare loop tokenizes the texts beforehand and sorts them together.
    """
    with child("ops.bench.baselines.encoders", *arguments) as process:
        yield process.ask(texts), process.ask


def sorted_launches(
    model: Model, engine: Engine, texts: Sequence[str], rounds: int = 1
) -> list[list[Any]]:
    """Launches that the platform would make of the texts, shortest first."""
    entries = [entry for entry in engine.prepare(texts, {}) if isinstance(entry, Prepared)] * rounds
    entries.sort(key=lambda entry: entry.size)
    rules, launches = Rules.from_model(model), list[list[Any]]()
    for bucket, same in groupby(entries, lambda entry: bucket_of(entry.size, model.buckets)):
        most_rows = rows = rules.most_rows(bucket)
        units = 0
        for entry in same:
            too_long = rules.most_units and units + entry.size > rules.most_units
            if rows == most_rows or too_long:
                launches.append([])
                rows = units = 0
            launches[-1].append(entry.data)
            rows, units = rows + 1, units + entry.size
    return launches


def _bare(texts: Sequence[str], models: str, name: str) -> tuple[str, Callable[[int], Any]]:
    """Returns (device, a function that prepares so many rounds and returns a function to time)."""
    from workers.engines import registry as engines

    model = (models_file.load(Path(models)) if models else SAMPLES).resolve(name)
    engine = engines.load_engine(model, "")

    def prepare(rounds: int) -> Callable[[], object]:
        """Sorts the texts; the result runs their launches."""
        launches = sorted_launches(model, engine, texts, rounds)
        return lambda: [engine.run(launch, {}) for launch in launches]

    return str(model.options.get("device", "cpu")), prepare


def reference_vectors(texts: Sequence[str]) -> Any:
    """Vectors of sentence-transformers in float32 on the CPU, [n, 384], of unit length."""
    model = _sentence_transformer("cpu")
    return model.encode([*texts], batch_size=_BATCH, normalize_embeddings=True)


def _sentence_transformer(device: str) -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_folder()), device=device)


def _sentence_transformers(
    texts: Sequence[str], device: str = ""
) -> tuple[str, Callable[[int], Any]]:
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = _sentence_transformer(device)
    batch = _CUDA_BATCH if device.startswith("cuda") else _BATCH
    encode = partial(model.encode, batch_size=batch, show_progress_bar=False)
    return device, lambda rounds: partial(encode, [*texts] * rounds)


def _main(kind: str, *arguments: str) -> None:
    import torch

    texts = json.loads(sys.stdin.readline())
    device, prepare = (_bare if kind == "bare" else _sentence_transformers)(texts, *arguments)
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    print(json.dumps(name), flush=True)

    def timed(rounds: int) -> float:
        """Seconds of so many rounds."""
        run = prepare(rounds)
        since_s = clock.monotonic()
        run()
        return clock.monotonic() - since_s

    answer_lines(timed)


if __name__ == "__main__":
    _main(*sys.argv[1:])
