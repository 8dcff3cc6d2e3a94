"""Bare loop of an engine over length-sorted launches, without the platform.

`python -m ops.bench.baselines.bare_engine_loop MODELS MODEL` reads JSON lines: texts, answered with
the device's name; then numbers of rounds, each answered with its seconds. MODELS is a models file;
empty: the samples.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from jobs import clock
from jobs.calls.lanes import bucket_of
from jobs.models import models_file
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from ops.bench.harness.child_process import child
from workers.engines.protocol import Engine, Prepared
from workers.scheduler.snapshot import Rules


@contextmanager
def bare_loop(
    models: Path | None, model: str, texts: Sequence[str]
) -> Iterator[tuple[str, Callable[[int], float]]]:
    """Starts the loop. Yields (device, a function that runs the texts so many times over).

    The texts are tokenized beforehand and sorted together; the function returns seconds.
    """
    with child("ops.bench.baselines.bare_engine_loop", str(models or ""), model) as process:
        device = process.ask(texts)
        yield device, process.ask


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


def _main(models: str, name: str) -> None:
    from workers.engines import registry as engines

    model = (models_file.load(Path(models)) if models else SAMPLES).resolve(name)
    engine = engines.load(model, "")
    texts = json.loads(sys.stdin.readline())
    print(json.dumps(_device_name(model)), flush=True)
    for line in sys.stdin:
        launches = sorted_launches(model, engine, texts, rounds=json.loads(line))
        since_s = clock.monotonic()
        for launch in launches:
            engine.run(launch, {})
        print(json.dumps(clock.monotonic() - since_s), flush=True)


def _device_name(model: Model) -> str:
    import torch

    device = str(model.options.get("device", "cpu"))
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


if __name__ == "__main__":
    _main(*sys.argv[1:])
