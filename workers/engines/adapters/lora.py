"""Matrices of adapters (LoRA, Hu et al. 2021, arXiv:2106.09685), and what they add to a layer.

A layer computes W x; an adapter adds (alpha / r) B A x to the rows that belong to it. The factor is
part of B here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from jobs.models.adapters import MATRIX, Adapter
from workers.engines.adapters import files
from workers.engines.protocol import Permanent

Shapes: TypeAlias = Mapping[str, tuple[int, int]]
"""Sizes (in, out) of the layers that adapters may change, by name."""

Rows: TypeAlias = slice | Tensor
"""Rows of a matrix: consecutive ones, or their indices."""


@dataclass(frozen=True, slots=True)
class Lora:
    """Matrices of one adapter."""

    rank: int
    #: by layer: A [rank, in], and B transposed, [rank, out], with the factor in it
    layers: Mapping[str, tuple[Tensor, Tensor]]

    def add(self, name: str, x: Tensor, y: Tensor, rows: Rows) -> None:
        """Adds to some rows of a layer's output y [row, out] what it makes of its input x."""
        if matrices := self.layers.get(name):
            add_product(x, y, rows, *matrices)

    @property
    def nbytes(self) -> int:
        """Size of the matrices."""
        return sum(a.nbytes + b.nbytes for a, b in self.layers.values())


def add_product(x: Tensor, y: Tensor, rows: Rows, a: Tensor, b: Tensor) -> None:
    """Adds x A^T B^T to rows of y, in place."""
    if isinstance(rows, slice):
        y[rows].addmm_(x[rows] @ a.T, b)
    else:
        y.index_add_(0, rows, x[rows] @ a.T @ b)


def load(adapter: Adapter, shapes: Shapes, dtype: torch.dtype, device: torch.device) -> Lora:
    """Reads and checks an adapter. Raises Permanent or Transient."""
    config, content = files.read(adapter)
    try:
        tensors = load_safetensors(content)
    except (SafetensorError, ValueError) as error:
        raise Permanent(f"adapter {adapter.name}: not safetensors: {error}") from error
    pairs: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if not (named := MATRIX.fullmatch(key)):
            raise _broken(adapter, f"it holds {key}; only LoRA of linear layers is supported")
        pairs.setdefault(named[1], {})[named[2]] = tensor
    if not pairs:
        raise _broken(adapter, "it holds no matrices")
    layers: dict[str, tuple[Tensor, Tensor]] = {}
    for name, pair in pairs.items():
        if problem := _misfit(name, pair, shapes, config.rank):
            raise _broken(adapter, problem)
        layers[name] = pair["A"].float(), pair["B"].float().T * config.scale
    if faulty := _not_finite(layers):
        raise _broken(adapter, f"{faulty} holds numbers that are not finite")
    placed = {
        name: (a.to(device, dtype).contiguous(), b.to(device, dtype).contiguous())
        for name, (a, b) in layers.items()
    }
    return Lora(config.rank, placed)


def _not_finite(layers: Mapping[str, tuple[Tensor, Tensor]]) -> str | None:
    """Returns a layer with a number that isn't finite. Where all sums are finite there is none,
    which takes a tenth of the time of a look at each number."""
    sums = torch.stack([one.sum() for pair in layers.values() for one in pair])
    if sums.isfinite().all():
        return None
    finite = {name: all(one.isfinite().all() for one in pair) for name, pair in layers.items()}
    return next((name for name, is_finite in finite.items() if not is_finite), None)


def _misfit(name: str, pair: Mapping[str, Tensor], shapes: Shapes, rank: int) -> str | None:
    if name not in shapes:
        return f"its base has no linear layer {name} that adapters may change: is it the right one?"
    size_in, size_out = shapes[name]
    for which, expected in (("A", (rank, size_in)), ("B", (size_out, rank))):
        if which not in pair:
            return f"{name} has no lora_{which}"
        if (found := tuple(pair[which].shape)) != expected:
            return f"lora_{which} of {name} is {list(found)}, where its base takes {list(expected)}"
    return None


def _broken(adapter: Adapter, problem: str) -> Permanent:
    return Permanent(f"adapter {adapter.name}: {problem}")


def rows_of(spans: Sequence[range], device: torch.device) -> Rows:
    """Returns the rows of several spans, as a slice where they follow one another."""
    first, *others = spans
    end = first.stop
    for span in others:
        if span.start != end:
            indices = [index for span in spans for index in span]
            return torch.tensor(indices, device=device)
        end = span.stop
    return slice(first.start, end)
