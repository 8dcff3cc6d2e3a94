"""Layouts of the texts of a launch in one [tokens, hidden] matrix: packed or padded.

A layout is created for each launch. Linear layers and norms see the matrix alone; attention and
pooling, which must not mix texts, belong to the layout.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from workers.engines.adapters.lora import Lora, Rows
from workers.engines.common.device import Send

TokenIds = NDArray[np.int32]

_SHORT, _SHORT_STEP, _LONG_STEP = 64, 8, 32  # tokens of a packed launch
_COLUMNS_STEP = 8  # tokens of a padded row: the GPU's tensor cores work in eights


class Layout(Protocol):
    """Layout of one launch."""

    ids: Tensor  #: integers [tokens], on the device
    positions: Tensor  #: integers [tokens], on the device
    spans: Sequence[range]  #: tokens of each text, in the order of the launch
    adapters: Sequence[tuple[Rows, Lora]]  #: of tokens, which the linear layers add

    def attend(self, qkv: Tensor, heads: int) -> Tensor:
        """Maps qkv [tokens, 3 hidden] to [tokens, hidden]: each token attends to its own text."""
        ...

    def pool(self, x: Tensor) -> Tensor:
        """Maps [tokens, hidden] to float32 [texts, hidden] in the order of the launch: the mean
        over the tokens of each text."""
        ...


class Packed:
    """Rows end to end, shortest first, without padding. Attention runs once for each length, which
    suits a CPU; a GPU would starve on small kernels."""

    def __init__(self, texts: Sequence[TokenIds], send: Send) -> None:
        filled = [*texts, *_filler(sum(map(len, texts)))]
        lengths = np.array([len(ids) for ids in filled])
        order = np.argsort(lengths, kind="stable")
        self._groups = [(len(list(same)), n) for n, same in groupby(lengths[order].tolist())]
        self.ids = send(np.concatenate([filled[i] for i in order]))
        self.positions = send(
            np.concatenate([np.arange(n, dtype=np.int32) for n in lengths[order]])
        )
        places = np.argsort(order)[: len(texts)]
        self._places = send(places)
        starts = np.concatenate([[0], np.cumsum(lengths[order])])
        self.spans: Sequence[range] = [range(starts[place], starts[place + 1]) for place in places]
        self.adapters: Sequence[tuple[Rows, Lora]] = ()

    def attend(self, qkv: Tensor, heads: int) -> Tensor:
        """Runs attention within each text."""
        mixed = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
        parts = zip(self._split(qkv), self._split(mixed), self._groups, strict=True)
        for part, out, (rows, length) in parts:
            shape = (rows, length, heads, -1)
            query, key, value = (p.view(shape).transpose(1, 2) for p in part.chunk(3, dim=1))
            mixed_heads = F.scaled_dot_product_attention(query, key, value)
            out.view(shape).copy_(mixed_heads.transpose(1, 2))
        return mixed

    def pool(self, x: Tensor) -> Tensor:
        """Returns the mean over each text."""
        parts = zip(self._split(x), self._groups, strict=True)
        means = [part.view(*shape, -1).mean(1, dtype=torch.float32) for part, shape in parts]
        return torch.cat(means)[self._places]

    def _split(self, x: Tensor) -> Sequence[Tensor]:
        return torch.split_with_sizes(x, [rows * length for rows, length in self._groups])


class Padded:
    """Matrix [texts, longest] and a mask: few large kernels, which suits a GPU."""

    def __init__(self, texts: Sequence[TokenIds], send: Send) -> None:
        lengths = np.array([len(ids) for ids in texts], dtype=np.int32)
        columns = -(-lengths.max() // _COLUMNS_STEP) * _COLUMNS_STEP
        real = np.arange(columns) < lengths[:, None]
        ids = np.zeros(real.shape, dtype=np.int32)
        ids[real] = np.concatenate(texts)
        self._shape = real.shape
        self.spans: Sequence[range] = [
            range(n * columns, (n + 1) * columns) for n in range(len(texts))
        ]
        self.adapters: Sequence[tuple[Rows, Lora]] = ()
        self.ids = send(ids.reshape(-1))
        self.positions = send(np.tile(np.arange(columns, dtype=np.int32), len(texts)))
        self._lengths = send(lengths[:, None])
        # Without a mask torch has a faster attention.
        self._real = None if real.all() else send(real)

    def attend(self, qkv: Tensor, heads: int) -> Tensor:
        """Runs attention within each text."""
        shape = (*self._shape, 3, heads, -1)
        query, key, value = qkv.view(shape).permute(2, 0, 3, 1, 4)
        mask = None if self._real is None else self._real[:, None, None, :]
        mixed = F.scaled_dot_product_attention(query, key, value, mask)
        return mixed.transpose(1, 2).reshape(len(qkv), -1)

    def pool(self, x: Tensor) -> Tensor:
        """Returns the mean over each text."""
        rows = x.view(*self._shape, -1)
        if self._real is not None:
            rows = rows * self._real[:, :, None]
        return rows.sum(1, dtype=torch.float32) / self._lengths


LAYOUTS: Mapping[str, Callable[[Sequence[TokenIds], Send], Layout]] = {
    "packed": Packed,
    "padded": Padded,
}
"""Create the layout of one launch from the token ids of each text."""


def _filler(tokens: int) -> list[TokenIds]:
    """Returns a text that rounds a launch up: oneDNN keeps compiled code for each number of tokens,
    hundreds of megabytes without this, a few dozen with it."""
    missing = -tokens % (_SHORT_STEP if tokens <= _SHORT else _LONG_STEP)
    return [np.zeros(missing, dtype=np.int32)] if missing else []
