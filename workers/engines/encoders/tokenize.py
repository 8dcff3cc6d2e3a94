"""Tokenizer of all-MiniLM-L6-v2: texts, or ready token ids, to token ids."""

import os
from collections.abc import Sequence
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
from workers.engines.protocol import InvalidInput, Params, Prepared, PreparedInputs, Preparer

_PIECE = 64  # texts a call of the tokenizer: more block other threads (10,000: 44 ms)
_SAMPLES = (3, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # tokens


class Texts(Preparer):
    """Tokenizer that cuts texts to max_tokens, [CLS] and [SEP] included. Raises ValueError."""

    def __init__(self, max_tokens: int) -> None:
        if not MIN_TOKENS <= max_tokens <= POSITIONS:
            raise ValueError(f"max_tokens must be {MIN_TOKENS} to {POSITIONS}, not {max_tokens}")
        # Tokenizing overlaps a forward pass that has the cores already.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._max_tokens = max_tokens
        self._tokenizer = Tokenizer.from_file(str(minilm_tokenizer()))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Returns token ids (int32 [size]) for each text or list of token ids; the param `truncate`
        cuts them further."""
        most = min(params.get("truncate", self._max_tokens), self._max_tokens)
        prepared: PreparedInputs = []
        for start in range(0, len(inputs), _PIECE):
            prepared += self._prepare_piece(inputs[start : start + _PIECE], most)
        return prepared

    def samples(self) -> list[str]:
        """Returns texts over the range of lengths."""
        return sample_texts(self._max_tokens)

    def _prepare_piece(self, inputs: Sequence[Any], most: int) -> PreparedInputs:
        refusals = [_refusal(value) for value in inputs]
        taken = [value for value, error in zip(inputs, refusals, strict=True) if not error]
        texts = [value for value in taken if isinstance(value, str)]
        encodings = iter(self._tokenizer.encode_batch_fast(texts))
        ids = (next(encodings).ids if isinstance(v, str) else with_specials(v) for v in taken)
        return [refusal or _prepared(next(ids), most) for refusal in refusals]


def sample_texts(max_tokens: int) -> list[str]:
    """Returns texts of about 3, 16, 32, 64, … tokens, up to max_tokens."""
    shorter = (tokens for tokens in _SAMPLES if tokens < max_tokens)
    return ["word " * (tokens - 2) for tokens in (*shorter, max_tokens)]


def _refusal(value: Any) -> InvalidInput | None:
    if embeddings.is_token_ids(value):
        problem = embeddings.refuse(value, WORDS)
        return problem and InvalidInput(problem[1])
    return refusal(value)


def refusal(value: Any) -> InvalidInput | None:
    """Returns why a value is no valid text; None if it is one."""
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
