"""A bare loop of an engine over length-sorted launches, with nothing of the platform around it.

`… -m ops.bench.bare MODELS MODEL` reads JSON lines: texts, answered with the device's name; then
numbers of rounds, each answered with the seconds that they took.
"""

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jobs import clock
from jobs.calls.lanes import bucket_of
from jobs.models import models_file
from jobs.models.model import Model
from ops.bench.load.child_process import ChildProcess
from workers.engines.protocol import Engine, Prepared
from workers.scheduler.snapshot import Rules


class BareLoop(ChildProcess):
    """That loop, in a process of its own. device: what it runs on."""

    def __init__(self, models: Path, model: str, texts: Sequence[str]) -> None:
        super().__init__("ops.bench.baselines.bare_engine_loop", str(models), model)
        self.device: str = self.ask(texts)

    def seconds(self, rounds: int) -> float:
        """To run the texts so many times over: sorted together, tokenized beforehand."""
        return float(self.ask(rounds))


def sorted_launches(
    model: Model, engine: Engine, texts: Sequence[str], rounds: int = 1
) -> list[list[Any]]:
    """The launches that the platform would make of them, shortest first."""
    made = [entry for entry in engine.prepare(texts, {}) if isinstance(entry, Prepared)] * rounds
    made.sort(key=lambda entry: entry.size)
    rules, launches = Rules.from_model(model), list[list[Any]]()
    for bucket, same in groupby(made, lambda entry: bucket_of(entry.size, model.buckets)):
        launches += _cut(list(same), rules.most_rows(bucket), rules.most_units)
    return launches


def _cut(entries: Sequence[Prepared], most_rows: int, most_units: int) -> list[list[Any]]:
    """In pieces that keep to both bounds; no units: no bound."""
    launches: list[list[Any]] = []
    rows, units = most_rows, 0
    for entry in entries:
        if rows == most_rows or (most_units and units + entry.size > most_units):
            launches.append([])
            rows, units = 0, 0
        launches[-1].append(entry.data)
        rows, units = rows + 1, units + entry.size
    return launches


def _answer_all(models: str, name: str) -> None:
    from workers.engines import registry as engines

    model = models_file.load(Path(models)).resolve(name)
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

    device = str(model.options["device"])
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


if __name__ == "__main__":
    _answer_all(*sys.argv[1:])
