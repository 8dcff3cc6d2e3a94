"""llama.cpp driven by its batch API, in an environment that has nothing but llama-cpp-python.

`python llamacpp_app.py GGUF` answers lines of JSON: {"prompts": [[id, …], …], "tokens": 32}.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp as library
import numpy as np

_MOST_TOKENS = 16_384  # of all sequences
llama: Any = library


class _Model:
    """Model with a context for so many sequences, one thread."""

    def __init__(self, gguf: str, sequences: int) -> None:
        llama.llama_log_set(_no_log, None)
        llama.llama_backend_init()
        defaults = llama.llama_model_default_params()
        defaults.use_extra_bufts = False  # with AMX it crashes on some virtual machines
        model = llama.llama_model_load_from_file(gguf.encode(), defaults)
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = _MOST_TOKENS
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = 1
        self._context = llama.llama_init_from_model(model, params)
        self._vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
        self._batch = llama.llama_batch_init(_MOST_TOKENS, 0, 1)

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
        """Returns the likeliest tokens, so many for each prompt."""
        llama.llama_memory_clear(llama.llama_get_memory(self._context), True)
        new = [list(prompt) for prompt in prompts]
        places = [0] * len(new)
        found: list[list[int]] = [[] for _ in new]
        for _ in range(tokens):
            rows = self._decode(new, places)
            places = [at + len(its) for at, its in zip(places, new, strict=True)]
            new = [[self._likeliest(row)] for row in rows]
            for its, more in zip(found, new, strict=True):
                its += more
        return found

    def _decode(self, new: Sequence[Sequence[int]], places: Sequence[int]) -> list[int]:
        """Computes new tokens of each sequence; returns the rows of the last ones."""
        batch, last = self._batch, []
        batch.n_tokens = 0
        for sequence, (tokens, place) in enumerate(zip(new, places, strict=True)):
            for n, token in enumerate(tokens):
                row = batch.n_tokens
                batch.token[row], batch.pos[row] = token, place + n
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence
                batch.logits[row] = n == len(tokens) - 1
                batch.n_tokens += 1
            last.append(batch.n_tokens - 1)
        if code := llama.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        return last

    def _likeliest(self, row: int) -> int:
        logits = llama.llama_get_logits_ith(self._context, row)
        return int(np.argmax(np.ctypeslib.as_array(logits, (self._vocabulary,))))


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _no_log(level: int, text: bytes, data: Any) -> None:
    """Drops a line of llama.cpp's log."""


def _main(gguf: str) -> None:
    model = None
    for line in sys.stdin:
        order = json.loads(line)
        model = model or _Model(gguf, len(order["prompts"]))
        since_s = time.process_time()
        found = model.generate(order["prompts"], order["tokens"])
        took_s = time.process_time() - since_s
        print(json.dumps({"tokens": sum(map(len, found)), "cpu_s": took_s}), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
