"""Tokenizer of a model folder: texts, and pairs of them, as rows of token ids."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.models.engines import huggingface_folder
from jobs.models.inputs.input_size import open_tokenizer
from workers.engines.encoders.tokenize import refusal
from workers.engines.protocol import InvalidInput

_PIECE = 64  # texts a call of the tokenizer: more block other threads
_COLUMNS_STEP = 8  # tokens: a device's tensor cores work in eights


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids of one text or pair; the last three are set for token labels only."""

    ids: NDArray[np.int32]  #: [tokens]
    types: NDArray[np.int32]  #: segment of each, [tokens]
    text: str = ""
    places: NDArray[np.int32] | None = None  #: [tokens, 2]: start and end in the text, characters
    special: NDArray[np.bool_] | None = None  #: [tokens]: True for special tokens

    def __len__(self) -> int:
        return len(self.ids)


class Tokens:
    """Tokenizer that cuts rows to `most` tokens, special ones included; `places` adds their places
    in the text."""

    def __init__(self, folder: Path, most: int, *, places: bool = False) -> None:
        # Tokenizing overlaps a forward pass that has the cores already.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._tokenizer = open_tokenizer(folder / huggingface_folder.TOKENIZER, most)
        self._places = places

    def texts(self, inputs: Sequence[Any], most: int) -> list[Row | InvalidInput]:
        """Returns a row for each text, cut to `most` tokens, or why it is refused."""
        refusals = [refusal(text) for text in inputs]
        taken = [text for text, error in zip(inputs, refusals, strict=True) if not error]
        rows = zip(taken, self._encoded(taken), strict=True)
        return [error or self._row(*next(rows), most) for error in refusals]

    def pairs(self, query: str, documents: Sequence[str]) -> list[Row]:
        """Returns a row for each document; if the two are too long, the longer one is cut first."""
        pairs = [(query, document) for document in documents]
        return [_plain(encoding) for encoding in self._encoded(pairs)]

    def _encoded(self, inputs: Sequence[Any]) -> Iterator[Any]:
        encode = self._tokenizer
        batch = encode.encode_batch if self._places else encode.encode_batch_fast
        for start in range(0, len(inputs), _PIECE):
            yield from batch(inputs[start : start + _PIECE])

    def _row(self, text: str, encoding: Any, most: int) -> Row:
        kept, row = _cut(encoding, most), _plain(encoding)
        row = Row(row.ids[kept], row.types[kept])
        if not self._places:
            return row
        places = np.array(encoding.offsets, np.int32).reshape(-1, 2)[kept]
        special = np.array(encoding.special_tokens_mask, np.bool_)[kept]
        return replace(row, text=text, places=places, special=special)


def padded(rows: Sequence[Row], padding: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns ids, types and mask (1 for tokens), int64 [rows, tokens of the longest]."""
    lengths = np.array([len(row) for row in rows])
    columns = -(-max(1, lengths.max()) // _COLUMNS_STEP) * _COLUMNS_STEP
    mask = np.arange(columns) < lengths[:, None]
    ids = np.full(mask.shape, padding, np.int64)
    types = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate([row.ids for row in rows])
    types[mask] = np.concatenate([row.types for row in rows])
    return ids, types, mask.astype(np.int64)


def _plain(encoding: Any) -> Row:
    return Row(np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int32))


def _cut(encoding: Any, most: int) -> NDArray[np.intp]:
    """Returns the indexes of tokens to keep: the first ones, and the special ones at the end."""
    count = len(encoding.ids)
    if count <= most:
        return np.arange(count)
    special = encoding.special_tokens_mask
    ending = next((n for n in range(count) if not special[count - 1 - n]), count)
    return np.concatenate([np.arange(most - ending), np.arange(count - ending, count)])
