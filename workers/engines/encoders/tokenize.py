"""Tokenizer of all-MiniLM-L6-v2: texts, or ready token ids, to token ids."""

import os
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from tokenizers import Encoding, Tokenizer

from jobs.models.inputs import embeddings
from jobs.models.inputs.input_size import (
    MIN_TOKENS,
    POSITIONS,
    WORDS,
    OnTooLong,
    minilm_tokenizer,
    with_specials,
)
from workers.engines.protocol import InvalidInput, Params, Prepared, PreparedInputs, Preparer

_PIECE = 64  # texts a call of the tokenizer: more block other threads (10,000: 44 ms)
_SPECIALS = 2  # [CLS], [SEP]
_SAMPLES = (3, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # tokens


class Texts(Preparer):
    """Tokenizer that cuts texts to max_tokens, [CLS] and [SEP] included, or refuses longer ones by
    `on_too_long` ("truncate", "fail"). Raises ValueError."""

    def __init__(self, max_tokens: int, on_too_long: OnTooLong = "truncate") -> None:
        if not MIN_TOKENS <= max_tokens <= POSITIONS:
            raise ValueError(f"max_tokens must be {MIN_TOKENS} to {POSITIONS}, not {max_tokens}")
        if on_too_long not in get_args(OnTooLong):
            raise ValueError(f'on_too_long must be "fail" or "truncate", not {on_too_long!r}')
        self._fails = on_too_long == "fail"
        # Tokenizing overlaps a forward pass that has the cores already.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._max_tokens = max_tokens
        self._tokenizer = Tokenizer.from_file(str(minilm_tokenizer()))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Returns token ids (int32 [size]) for each text or list of token ids; the param `truncate`
        cuts them, and further than the model does."""
        most = min(params.get("truncate", self._max_tokens), self._max_tokens)
        fails = self._fails and "truncate" not in params
        prepared: PreparedInputs = []
        for start in range(0, len(inputs), _PIECE):
            prepared += self._prepare_piece(inputs[start : start + _PIECE], most, fails)
        return prepared

    def samples(self) -> list[str]:
        """Returns texts over the range of lengths."""
        return ["word " * (tokens - _SPECIALS) for tokens in sample_tokens(self._max_tokens)]

    def _prepare_piece(self, inputs: Sequence[Any], most: int, fails: bool) -> PreparedInputs:
        refusals = [_refusal(value) for value in inputs]
        taken = [value for value, error in zip(inputs, refusals, strict=True) if not error]
        texts = [value for value in taken if isinstance(value, str)]
        encodings = iter(self._tokenizer.encode_batch_fast(texts))
        rows = (next(encodings) if isinstance(v, str) else with_specials(v) for v in taken)
        return [refusal or self._prepared(next(rows), most, fails) for refusal in refusals]

    def _prepared(
        self, row: Encoding | Sequence[int], most: int, fails: bool
    ) -> Prepared | InvalidInput:
        whole = len(row)
        if isinstance(row, Encoding):
            ids: Sequence[int] = row.ids
            if whole == self._max_tokens:  # it may have been cut
                whole = uncut_tokens(row, _SPECIALS)
        else:
            ids = row
        if whole <= most:
            return Prepared(size=whole, data=np.array(ids, dtype=np.int32))
        if fails:
            return too_long(whole, most)
        ids = [*ids[: most - 1], ids[-1]]  # [SEP] stays
        return Prepared(len(ids), np.array(ids, dtype=np.int32), whole - len(ids))


def sample_tokens(max_tokens: int) -> list[int]:
    """Returns lengths of samples: 3, 16, 32, 64, … tokens, up to max_tokens."""
    return [*(tokens for tokens in _SAMPLES if tokens < max_tokens), max_tokens]


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


def uncut_tokens(encoding: Encoding, specials: int) -> int:
    """Returns the tokens that a text has, of an encoding that a tokenizer cut. specials: tokens
    that each part has besides its own: special ones, and those of a query."""
    return len(encoding) + sum(len(part) - specials for part in encoding.overflowing)


def too_long(tokens: int, most: int, pair: str = "") -> InvalidInput:
    """Returns the error of a text, or a pair of them, that is not to be cut. Clients know it by its
    words, which are OpenAI's and vLLM's."""
    ways = 'on_too_long = "truncate" in the options of the model'
    if not pair:
        ways = f'the parameter "truncate", or by {ways}'
    return InvalidInput(
        f"{pair or 'the text'} is too long: This model's maximum context length is {most} tokens. "
        f"However, you requested {tokens} tokens. Please shorten or split the text, or have it cut "
        f"by {ways}"
    )
