"""Texts to token ids, by the tokenizer of all-MiniLM-L6-v2, and token ids as they come."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from jobs.models.inputs import embeddings
from jobs.models.inputs.input_size import (
    MIN_TOKENS,
    POSITIONS,
    WORDS,
    minilm_tokenizer,
    with_specials,
)
from workers.engines.protocol import InvalidInput, Prepared

_PIECE = 64
"""Texts a call of the tokenizer: more keep the other threads waiting (10,000: 44 ms)."""
_SAMPLES = (3, 16, 32, 64, 128, 256)  # tokens


class Texts:
    """max_tokens: longer texts are cut to this many tokens, [CLS] and [SEP] included."""

    def __init__(self, max_tokens: int) -> None:
        if not MIN_TOKENS <= max_tokens <= POSITIONS:
            raise ValueError(f"max_tokens must be {MIN_TOKENS} to {POSITIONS}, not {max_tokens}")
        # Tokenizing overlaps a forward pass that has the cores already.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._max_tokens = max_tokens
        self._tokenizer = Tokenizer.from_file(str(minilm_tokenizer()))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """Token ids (int32 [size]) for each text, or list of its token ids; `truncate` cuts them
        further."""
        most = min(params.get("truncate", self._max_tokens), self._max_tokens)
        answers: list[Prepared | InvalidInput] = []
        for start in range(0, len(inputs), _PIECE):
            answers += self._prepare_piece(inputs[start : start + _PIECE], most)
        return answers

    def samples(self) -> list[str]:
        """Texts of about 3, 16, 32, 64, 128 and 256 tokens, as far as max_tokens goes."""
        shorter = (tokens for tokens in _SAMPLES if tokens < self._max_tokens)
        return ["word " * (tokens - 2) for tokens in (*shorter, self._max_tokens)]

    def _prepare_piece(self, inputs: Sequence[Any], most: int) -> list[Prepared | InvalidInput]:
        refusals = [_refusal(value) for value in inputs]
        taken = [value for value, no in zip(inputs, refusals, strict=True) if no is None]
        texts = [value for value in taken if isinstance(value, str)]
        encodings = iter(self._tokenizer.encode_batch_fast(texts))
        ids = (next(encodings).ids if isinstance(v, str) else with_specials(v) for v in taken)
        return [refusal or _prepared(next(ids), most) for refusal in refusals]


def _refusal(value: Any) -> InvalidInput | None:
    if embeddings.is_token_ids(value):
        no = embeddings.refuse(value, WORDS)
        return no and InvalidInput(no[1])
    return refusal(value)


def refusal(value: Any) -> InvalidInput | None:
    """What is wrong with a text, if anything is."""
    if not isinstance(value, str):
        return InvalidInput(f"the input must be a string, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        return InvalidInput("the input holds a lone surrogate, which is not valid Unicode")
    return None


def _prepared(ids: Sequence[int], most: int) -> Prepared:
    if len(ids) > most:
        ids = [*ids[: most - 1], ids[-1]]  # [SEP] stays
    return Prepared(size=len(ids), data=np.array(ids, dtype=np.int32))
