"""The baselines of `minilm`: sentence-transformers' `encode`, and a bare loop of the engine.

They run in a process of their own: `python -m ops.bench.baselines.sentence_transformers` reads JSON
lines (the sentences, then what to run) and answers each with a JSON line.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence

from jobs import clock
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.input_size import minilm_folder
from ops.bench.baselines.bare_engine_loop import sorted_launches
from ops.bench.load.child_process import ChildProcess

_BATCH = 32


class SentenceTransformersBaseline(ChildProcess):
    """That process, as the benchmark sees it."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("ops.bench.baselines.sentence_transformers")
        self.has_gpu = bool(self.ask(sentences))

    def seconds(self, what: str) -> float:
        """Runs "encode" or "bare_loop" over all sentences; returns how long it took."""
        return float(self.ask(what))


def _encoder(sentences: Sequence[str]) -> Callable[[], object]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm_folder()))
    return lambda: model.encode(list(sentences), batch_size=_BATCH, show_progress_bar=False)


def _bare_loop(sentences: Sequence[str]) -> Callable[[], object]:
    from workers.engines import registry

    model = SAMPLES.resolve("minilm")
    engine = registry.load(model, "")
    launches = sorted_launches(model, engine, sentences)
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
