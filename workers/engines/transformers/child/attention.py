"""Attention over a paged KV cache, for rows of several sequences packed into one.

The dense layers see all tokens of a step as one row. Attention is computed for each chunk of a
prompt alone, and for decoding sequences of similar length together, padded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as attend

from workers.engines.transformers.child.blocks import PADDING
from workers.engines.transformers.child.sequences import Chunk

NAME = "millrace_paged"
"""Name of the function among transformers' attention implementations."""

_MOST_PADDING = 1.3  # times the tokens that a group of sequences has

Layer: TypeAlias = tuple[Tensor, Tensor]
"""Keys and values of one layer: [block, token, head, dimension]."""


def empty_layer(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Layer:
    """Allocates one layer of the cache, zeroed: masked positions must hold finite numbers."""
    return _zeros(shape, dtype, device), _zeros(shape, dtype, device)


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, np.uint8)).view(dtype).view(shape)  # pages come by use


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunk of a prompt."""

    rows: slice  #: of the packed row
    blocks: Tensor | None  #: of its sequence; None: nothing came before the chunk
    size: int  #: tokens up to its end
    mask: Tensor | None  #: [row, token]


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences that decode, of similar length."""

    rows: Tensor  #: of the packed row, [sequence]
    blocks: Tensor  #: [sequence, block]
    size: int  #: tokens of the longest
    mask: Tensor | None  #: [sequence, 1, 1, token]; None: they have one length


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Tokens of a step, and where their keys and values are."""

    layers: Sequence[Layer]
    slots: Tensor  #: place in the cache of each row
    pieces: Sequence[Piece]
    groups: Sequence[Group] = field(default_factory=tuple)


def pack(chunks: Sequence[Chunk], layers: Sequence[Layer]) -> PackedRow:
    """Arranges chunks, which follow one another in the packed row."""
    block_tokens, device = layers[0][0].shape[1], layers[0][0].device
    slots: list[int] = []
    pieces: list[Piece] = []
    decoding: list[tuple[int, Chunk]] = []
    for chunk in chunks:
        row, blocks = len(slots), chunk.sequence.blocks
        for place in range(chunk.start, chunk.end):
            block, token = divmod(place, block_tokens)
            slots.append(blocks[block] * block_tokens + token)
        if chunk.size == 1:
            decoding.append((row, chunk))
        else:
            pieces.append(_piece(slice(row, len(slots)), chunk, block_tokens, device))
    groups = [_group(some, block_tokens, device) for some in _similar(decoding)]
    return PackedRow(layers, torch.tensor(slots, device=device), pieces, groups)


def _piece(rows: slice, chunk: Chunk, block_tokens: int, device: torch.device) -> Piece:
    if not chunk.start:
        return Piece(rows, None, chunk.end, None)
    places = torch.arange(chunk.end, device=device)
    mask = places <= places[chunk.start :, None]
    blocks = chunk.sequence.blocks[: -(-chunk.end // block_tokens)]
    return Piece(rows, torch.tensor(blocks, device=device), chunk.end, mask)


def _similar(decoding: Sequence[tuple[int, Chunk]]) -> Iterator[list[tuple[int, Chunk]]]:
    """Yields groups by falling length, with little padding."""
    some: list[tuple[int, Chunk]] = []
    tokens = 0
    for row, chunk in sorted(decoding, key=lambda entry: -entry[1].end):
        longest = some[0][1].end if some else chunk.end
        if (len(some) + 1) * longest > _MOST_PADDING * (tokens + chunk.end):
            yield some
            some, tokens = [], 0
        some.append((row, chunk))
        tokens += chunk.end
    if some:
        yield some


def _group(some: Sequence[tuple[int, Chunk]], block_tokens: int, device: torch.device) -> Group:
    sizes = [chunk.end for _, chunk in some]
    longest = max(sizes)
    most = -(-longest // block_tokens)
    table = [(chunk.sequence.blocks + [PADDING] * most)[:most] for _, chunk in some]
    mask = None
    if min(sizes) < longest:
        ends = torch.tensor(sizes, device=device)
        mask = (torch.arange(longest, device=device) < ends[:, None])[:, None, None]
    rows = torch.tensor([row for row, _ in some], device=device)
    return Group(rows, torch.tensor(table, device=device), longest, mask)


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    packed: PackedRow,
    **_: Any,
) -> tuple[Tensor, None]:
    """Implements transformers' interface of attention: query [1, head, row, dimension]."""
    keys, values = packed.layers[int(module.layer_idx)]  # type: ignore[arg-type]
    key, value = key[0].transpose(0, 1), value[0].transpose(0, 1)  # [row, head, dimension]
    keys.view(-1, *keys.shape[2:])[packed.slots] = key
    values.view(-1, *values.shape[2:])[packed.slots] = value
    rows = query[0].transpose(0, 1)
    output = rows.new_empty(*rows.shape[:2], value.shape[-1])
    for piece in packed.pieces:
        inner = key[piece.rows], value[piece.rows]
        if piece.blocks is not None:
            inner = _read(keys, piece.blocks, piece.size), _read(values, piece.blocks, piece.size)
        output[piece.rows] = _of_piece(rows[piece.rows], *inner, piece.mask, scaling)
    for group in packed.groups:
        inner = _read(keys, group.blocks, group.size), _read(values, group.blocks, group.size)
        output[group.rows] = _of_group(rows[group.rows], *inner, group.mask, scaling)
    return output[None], None


def _read(cache: Tensor, blocks: Tensor, size: int) -> Tensor:
    """Returns a copy of [..., token, head, dimension] from blocks [..., block]."""
    found = cache[blocks]
    return found.flatten(-4, -3)[..., :size, :, :]


def _of_piece(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    shared = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(shared, 1).transpose(0, 1)[None] for part in (key, value))
    query = query.transpose(0, 1)[None]
    found = attend(query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale)
    return found[0].transpose(0, 1)


def _of_group(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Query heads that share a key head are rows of one attention: nothing is repeated."""
    count, heads = len(query), key.shape[2]
    query = query.view(count, heads, -1, query.shape[-1])
    key, value = key.transpose(1, 2), value.transpose(1, 2)
    return attend(query, key, value, attn_mask=mask, scale=scale).flatten(1, 2)
