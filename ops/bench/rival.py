"""What `minilm` is measured against, in a process of its own: sentence-transformers' `encode`, and
a bare loop of the engine. `python -m ops.bench.rival` reads JSON lines: the sentences, then what
to run; it answers each with a JSON line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from signal import SIGTERM
from types import TracebackType
from typing import Any

from jobs import clock
from jobs.calls.lanes import bucket_of
from jobs.registry import SAMPLES
from jobs.sizes import minilm_folder
from ops.processes import die_with_parent

_BATCH = 32


class Rival:
    """That process, as the benchmark sees it. It waits for us without using the CPU."""

    def __init__(self, sentences: Sequence[str]) -> None:
        command = die_with_parent([sys.executable, "-m", "ops.bench.rival"], SIGTERM)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.has_gpu = bool(self._ask(sentences))

    def seconds(self, what: str) -> float:
        """Runs "encode" or "bare_loop" over all sentences; returns how long it took."""
        return float(self._ask(what))

    def _ask(self, question: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> "Rival":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()


def _encoder(sentences: Sequence[str]) -> Callable[[], object]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm_folder()))
    return lambda: model.encode(list(sentences), batch_size=_BATCH, show_progress_bar=False)


def _bare_loop(sentences: Sequence[str]) -> Callable[[], object]:
    """The launches that the platform would make of them, shortest first, and nothing else."""
    from workers.engines import registry
    from workers.engines.protocol import Prepared

    model = SAMPLES.resolve("minilm")
    engine = registry.load(model, "")
    made = [entry for entry in engine.prepare(sentences, {}) if isinstance(entry, Prepared)]
    made.sort(key=lambda entry: entry.size)
    launches = []
    for bucket, same in groupby(made, lambda entry: bucket_of(entry.size, model.buckets)):
        batch = [entry.data for entry in same]
        rows = max(1, min(model.limits.max_batch, model.limits.max_tokens // bucket))
        launches += [batch[start : start + rows] for start in range(0, len(batch), rows)]
    return lambda: [engine.run(launch, {}) for launch in launches]


def _answer_all() -> None:
    import torch

    sentences = json.loads(sys.stdin.readline())
    print(json.dumps(torch.cuda.is_available()), flush=True)
    makers = {"encode": _encoder, "bare_loop": _bare_loop}
    made: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        what = json.loads(line)
        if what not in made:
            made[what] = makers[what](sentences)
        since_s = clock.monotonic()
        made[what]()
        print(json.dumps(clock.monotonic() - since_s), flush=True)


if __name__ == "__main__":
    _answer_all()
