"""Tokenizer of a model folder: texts, and pairs of them, as rows of token ids."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.models.engines import huggingface_folder
from jobs.models.inputs.input_size import OnTooLong, open_tokenizer
from workers.engines.encoders.tokenize import refusal, too_long, uncut_tokens
from workers.engines.protocol import InvalidInput

_PIECE = 64  # texts a call of the tokenizer: more block other threads
_COLUMNS_STEP = 8  # tokens: a device's tensor cores work in eights


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids of one text or pair; `text`, `places` and `special` are set for
    token labels only."""

    ids: NDArray[np.int32]  #: [tokens]
    types: NDArray[np.int32]  #: segment of each, [tokens]
    text: str = ""
    places: NDArray[np.int32] | None = None  #: [tokens, 2]: start and end in the text, characters
    special: NDArray[np.bool_] | None = None  #: [tokens]: True for special tokens
    truncated: int = 0  #: tokens of the text or pair that were cut away

    def __len__(self) -> int:
        return len(self.ids)


class Tokens:
    """Tokenizer that cuts rows to `most` tokens, special ones included, or refuses longer ones by
    `on_too_long`; `places` adds their places in the text."""

    def __init__(
        self, folder: Path, most: int, on_too_long: OnTooLong, *, places: bool = False
    ) -> None:
        # Tokenizing overlaps a forward pass that has the cores already.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self._tokenizer = open_tokenizer(folder / huggingface_folder.TOKENIZER, most)
        self._most, self._fails, self._places = most, on_too_long == "fail", places
        self._specials: int = self._tokenizer.num_special_tokens_to_add(False)
        self._specials_of_pair: int = self._tokenizer.num_special_tokens_to_add(True)

    def texts(self, inputs: Sequence[Any], truncate: int | None = None) -> list[Row | InvalidInput]:
        """Returns a row for each text, or why it is refused. truncate: tokens that all are cut to,
        where that was asked for."""
        refusals = [refusal(text) for text in inputs]
        taken = [text for text, error in zip(inputs, refusals, strict=True) if not error]
        rows = zip(taken, self._encoded(taken), strict=True)
        return [error or self._row(*next(rows), truncate) for error in refusals]

    def pairs(self, query: str, documents: Sequence[str]) -> list[Row] | InvalidInput:
        """Returns a row for each document; if the two are too long, the longer one is cut first, or
        the query and its documents are refused."""
        rows: list[Row] = []
        of_query = 0
        # Encodings last for a piece: those that were cut have what was cut away beside them.
        for encoding in self._encoded([(query, document) for document in documents]):
            row, number = _plain(encoding), len(rows)
            if len(row) == self._most and encoding.overflowing:
                of_query = of_query or self._size(query)
                whole = self._whole(encoding, of_query, documents[number])
                if self._fails:
                    return too_long(whole, self._most, f"document {number} with the query")
                row = replace(row, truncated=whole - len(row))
            rows.append(row)
        return rows

    def _whole(self, encoding: Any, of_query: int, document: str) -> int:
        """Returns the tokens that a pair has, of its encoding, which was cut."""
        if encoding.sequence_ids.count(0) == of_query:  # of the document alone
            return uncut_tokens(encoding, of_query + self._specials_of_pair)
        # Its parts are each part of the query with each of the document.
        return of_query + self._size(document) + self._specials_of_pair

    def samples(self, lengths: Sequence[int]) -> list[str]:
        """Returns texts of about so many tokens, none of which is longer than its length; but of
        one word at least."""
        each = max(1, self._size("word word") - self._size("word"))
        return ["word " * max(1, (tokens - self._specials) // each) for tokens in lengths]

    def _size(self, text: str) -> int:
        """Returns the tokens that a text has, without special ones."""
        [encoding] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return uncut_tokens(encoding, 0)

    def _encoded(self, inputs: Sequence[Any]) -> Iterator[Any]:
        encode = self._tokenizer
        batch = encode.encode_batch if self._places else encode.encode_batch_fast
        for start in range(0, len(inputs), _PIECE):
            yield from batch(inputs[start : start + _PIECE])

    def _row(self, text: str, encoding: Any, truncate: int | None) -> Row | InvalidInput:
        row, whole, most = _plain(encoding), len(encoding), self._most
        if whole == most:  # it may have been cut
            whole = uncut_tokens(encoding, self._specials)
        if truncate is None and self._fails and whole > most:
            return too_long(whole, most)
        kept = _cut(encoding, most if truncate is None else min(truncate, most))
        row = Row(row.ids[kept], row.types[kept], truncated=whole - len(kept))
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
