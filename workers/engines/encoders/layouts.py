"""Layouts of the texts of a launch in one [tokens, hidden] matrix: packed, varlen or padded.

A layout is created for each launch. Linear layers and norms see the matrix alone; attention and
pooling, which must not mix texts, belong to the layout.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.engines.adapters.lora import Lora, Rows
from workers.engines.common.device import Send
from workers.engines.encoders.attention import FULL, Attention, has_varlen

TokenIds = NDArray[np.int32]

_SHORT, _SHORT_STEP, _LONG_STEP = 64, 8, 32  # tokens of a packed launch
_COLUMNS_STEP = 8  # tokens of a padded row: the GPU's tensor cores work in eights


class Layout(Protocol):
    """Layout of one launch."""

    ids: Tensor  #: integers [tokens], on the device
    positions: Tensor  #: integers [tokens], on the device
    spans: Sequence[range]  #: tokens of each text, in the order of the launch
    adapters: Sequence[tuple[Rows, Lora]]  #: of tokens, which the linear layers add

    def spread(self, values: Sequence[NDArray[Any]]) -> Tensor:
        """Returns integers [tokens], on the device, of those of each text, [its tokens]."""
        ...

    def attend(self, parts: Iterable[Tensor], how: Attention = FULL) -> Tensor:
        """Maps query, key and value, each [tokens, heads, dim], to [tokens, heads * dim]: each
        token attends to its own text. Key and value may have fewer heads."""
        ...

    def pool(self, x: Tensor) -> Tensor:
        """Maps [tokens, hidden] to float32 [texts, hidden] in the order of the launch: the mean
        over the tokens of each text."""
        ...

    def pick(self, x: Tensor, places: NDArray[Any]) -> Tensor:
        """Maps [tokens, hidden] to [texts, hidden]: one token of each text, by its place there,
        integers [texts]."""
        ...

    def unpack(self, x: Tensor) -> Tensor:
        """Maps [tokens, …] to the tokens of all texts, in the order of the launch, without any
        other."""
        ...


class _OnHost:
    """Base of layouts whose places of tokens are known on the host: where each text begins, and its
    length, in the order of the launch."""

    def __init__(self, starts: NDArray[Any], lengths: NDArray[Any], send: Send) -> None:
        self._starts, self._lengths, self._send = starts, lengths, send
        self.adapters: Sequence[tuple[Rows, Lora]] = ()

    def pick(self, x: Tensor, places: NDArray[Any]) -> Tensor:
        """Returns one token of each text."""
        return x[self._send(self._starts + places)]

    def unpack(self, x: Tensor) -> Tensor:
        """Returns the tokens of all texts."""
        ends = np.cumsum(self._lengths)
        shifts = np.repeat(self._starts - ends + self._lengths, self._lengths)
        return x[self._send(np.arange(ends[-1]) + shifts)]


class Packed(_OnHost):
    """Rows end to end, shortest first, without padding. Attention runs once for each length, which
    suits a CPU; a GPU would starve on small kernels."""

    def __init__(self, texts: Sequence[TokenIds], send: Send) -> None:
        filled = [*texts, *_filler(sum(map(len, texts)))]
        lengths = np.array([len(ids) for ids in filled])
        self._order = order = np.argsort(lengths, kind="stable")
        self._groups = [(len(list(same)), n) for n, same in groupby(lengths[order].tolist())]
        places = np.argsort(order)[: len(texts)]
        starts = np.concatenate([[0], np.cumsum(lengths[order])])
        super().__init__(starts[places], lengths[: len(texts)], send)
        self._filled, self._places = filled[len(texts) :], send(places)
        self._masks: dict[tuple[Attention, int], Tensor | None] = {}
        self.spans: Sequence[range] = [range(starts[place], starts[place + 1]) for place in places]
        self.ids = self.spread(texts)
        self.positions = send(
            np.concatenate([np.arange(n, dtype=np.int32) for n in lengths[order]])
        )

    def spread(self, values: Sequence[NDArray[Any]]) -> Tensor:
        """Returns the integers of each token."""
        filled = [*values, *self._filled]
        return self._send(np.concatenate([filled[i] for i in self._order]))

    def attend(self, parts: Iterable[Tensor], how: Attention = FULL) -> Tensor:
        """Runs attention within each text."""
        query, key, value = parts
        mixed = query.new_empty(query.shape)
        of_groups = zip(*map(self._split, (query, key, value, mixed)), self._groups, strict=True)
        for *its, out, shape in of_groups:
            rows = (part.view(*shape, *part.shape[1:]) for part in its)
            heads = how.padded(rows, self._mask(how, shape[1], query))
            out.view(*shape, *out.shape[1:]).copy_(heads.transpose(1, 2))
        return mixed.view(len(mixed), -1)

    def pool(self, x: Tensor) -> Tensor:
        """Returns the mean over each text."""
        parts = zip(self._split(x), self._groups, strict=True)
        means = [part.view(*shape, -1).mean(1, dtype=torch.float32) for part, shape in parts]
        return torch.cat(means)[self._places]

    def _mask(self, how: Attention, tokens: int, like: Tensor) -> Tensor | None:
        """Returns the mask of a length, made once a launch; not so a bias, which is as large for
        each head."""
        if how.bias:
            return how.mask(tokens, like)
        if (how, tokens) not in self._masks:
            self._masks[how, tokens] = how.mask(tokens, like)
        return self._masks[how, tokens]

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        return torch.split_with_sizes(x, [rows * length for rows, length in self._groups])


class Varlen:
    """Rows end to end, in the order of the launch, without padding. One kernel runs attention over
    texts of any length, which suits a GPU."""

    def __init__(self, texts: Sequence[TokenIds], send: Send) -> None:
        lengths = np.array([len(ids) for ids in texts], dtype=np.int32)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        tokens = int(starts[-1])
        positions = np.arange(tokens, dtype=np.int32) - np.repeat(starts[:-1], lengths)
        sent = send(np.concatenate([*texts, positions, starts]))  # one copy for all three
        self.ids, self.positions = sent[:tokens], sent[tokens : 2 * tokens]
        self._starts = sent[2 * tokens :]
        self._send, self._longest = send, int(lengths.max())
        self.spans: Sequence[range] = [range(*ends) for ends in pairwise(starts.tolist())]
        self.adapters: Sequence[tuple[Rows, Lora]] = ()

    def spread(self, values: Sequence[NDArray[Any]]) -> Tensor:
        """Returns the integers of each token."""
        return self._send(np.concatenate(values))

    def attend(self, parts: Iterable[Tensor], how: Attention = FULL) -> Tensor:
        """Runs attention within each text."""
        mixed = how.varlen(parts, self._starts, self._longest)
        return mixed.reshape(len(mixed), -1)

    def pool(self, x: Tensor) -> Tensor:
        """Returns the mean over each text."""
        # Each sum is one thread's, token by token: the same bits whatever the neighbours are.
        offsets = self._starts.long()
        return torch.segment_reduce(x.float(), "mean", offsets=offsets, axis=0, unsafe=True)

    def pick(self, x: Tensor, places: NDArray[Any]) -> Tensor:
        """Returns one token of each text."""
        return x[self._send(np.array([span.start for span in self.spans]) + places)]

    def unpack(self, x: Tensor) -> Tensor:
        """Returns the tokens of all texts."""
        return x


class Padded(_OnHost):
    """Matrix [texts, longest] and a mask: few large kernels."""

    def __init__(self, texts: Sequence[TokenIds], send: Send) -> None:
        lengths = np.array([len(ids) for ids in texts], dtype=np.int32)
        columns = -(-lengths.max() // _COLUMNS_STEP) * _COLUMNS_STEP
        rows = np.arange(len(texts)) * columns
        super().__init__(rows, lengths, send)
        self._mask = np.arange(columns) < lengths[:, None]
        self.spans: Sequence[range] = [range(row, row + columns) for row in rows]
        self.ids = self.spread(texts)
        self.positions = send(np.tile(np.arange(columns, dtype=np.int32), len(texts)))
        self._counts = send(lengths[:, None])
        # Without a mask torch has a faster attention.
        self._real = None if self._mask.all() else send(self._mask)

    def spread(self, values: Sequence[NDArray[Any]]) -> Tensor:
        """Returns the integers of each token, and zeros for padding."""
        spread = np.zeros(self._mask.shape, dtype=np.int32)
        spread[self._mask] = np.concatenate(values)
        return self._send(spread.reshape(-1))

    def attend(self, parts: Iterable[Tensor], how: Attention = FULL) -> Tensor:
        """Runs attention within each text."""
        rows, columns = self._mask.shape
        query, key, value = (part.view(rows, columns, *part.shape[1:]) for part in parts)
        mask = how.mask(columns, query, self._real)
        return how.padded((query, key, value), mask).transpose(1, 2).reshape(rows * columns, -1)

    def pool(self, x: Tensor) -> Tensor:
        """Returns the mean over each text."""
        rows = x.view(*self._mask.shape, -1)
        if self._real is not None:
            rows = rows * self._real[:, :, None]
        return rows.sum(1, dtype=torch.float32) / self._counts


NAMES = ("packed", "padded")
"""Layouts that a model may declare."""

CreateLayout: TypeAlias = Callable[[Sequence[TokenIds], Send], Layout]
"""Creates the layout of one launch from the token ids of each text."""


def choose(
    name: str, place: torch.device, dtype: torch.dtype, head_size: int, *, biased: bool = False
) -> CreateLayout:
    """Returns the layout of a model that declares "packed" or "padded", on a device.

    Packed rows are `Varlen` where its kernel runs, which takes no bias, else `Packed`: a launch is
    bounded by its tokens, and padded ones could be any times as many. head_size: numbers of a head.
    biased: its attention has a bias.
    """
    if name == "padded":
        return Padded
    return Varlen if has_varlen(place, dtype, head_size) and not biased else Packed


def _filler(tokens: int) -> list[TokenIds]:
    """Returns a text that rounds a launch up: oneDNN keeps compiled code for each number of tokens,
    hundreds of megabytes without this, a few dozen with it."""
    missing = -tokens % (_SHORT_STEP if tokens <= _SHORT else _LONG_STEP)
    return [np.zeros(missing, dtype=np.int32)] if missing else []
