"""What `minilm` is measured against, in a process of its own: sentence-transformers' `encode`, and
a bare loop of the engine. `python -m ops.bench.rival` reads JSON lines: the sentences, then what
to run; it answers each with a JSON line."""

import json
import os
import sys
from collections.abc import Callable, Sequence

from jobs import clock
from jobs.registry import SAMPLES
from jobs.sizes import minilm_folder
from ops.bench.bare import sorted_launches
from ops.bench.beside import Beside

_BATCH = 32


class Rival(Beside):
    """That process, as the benchmark sees it."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__("ops.bench.rival")
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
