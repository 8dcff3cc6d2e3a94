"""Baseline of `minilm`: `encode` of sentence-transformers, in a process of its own.

`python -m ops.bench.baselines.sentence_transformers` reads sentences as a JSON line, answers with
whether there is a GPU, and each further line with the seconds that they took.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from jobs import clock
from jobs.models.inputs.input_size import minilm_folder
from ops.bench.harness.child_process import child

_BATCH = 32


@contextmanager
def sentence_transformers(sentences: Sequence[str]) -> Iterator[tuple[bool, Callable[[], float]]]:
    """Starts it. Yields (has a GPU, a function that encodes all sentences, in seconds)."""
    with child("ops.bench.baselines.sentence_transformers") as process:
        has_gpu = process.ask(sentences)
        yield has_gpu, process.ask


def _main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from sentence_transformers import SentenceTransformer

    sentences = json.loads(sys.stdin.readline())
    print(json.dumps(torch.cuda.is_available()), flush=True)
    model = SentenceTransformer(str(minilm_folder()))
    for _ in sys.stdin:
        since_s = clock.monotonic()
        model.encode(sentences, batch_size=_BATCH, show_progress_bar=False)
        print(json.dumps(clock.monotonic() - since_s), flush=True)


if __name__ == "__main__":
    _main()
