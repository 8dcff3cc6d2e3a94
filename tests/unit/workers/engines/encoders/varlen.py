"""Definition of torch's attention over texts end to end, whose kernel needs a GPU."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    longest: int,
    longest_key: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
) -> Tensor:
    """Computes what torch's function, which needs a GPU, says that it computes; text by text."""
    ends = starts.tolist()
    assert torch.equal(starts, key_starts)
    assert query.shape[2] % 8 == 0, "the kernel takes heads of so many numbers alone"
    assert longest == longest_key == max(b - a for a, b in pairwise(ends))
    assert enable_gqa == (query.shape[1] != key.shape[1])
    before, after = window_size
    mixed = torch.empty_like(query)
    for start, end in pairwise(ends):
        at = torch.arange(end - start)
        away = at[:, None] - at[None, :]
        allowed = torch.ones_like(away, dtype=torch.bool)
        allowed &= (before < 0) | (away <= before)
        allowed &= (after < 0) | (-away <= after)
        its = (part[start:end].transpose(0, 1) for part in (query, key, value))
        heads = functional.scaled_dot_product_attention(
            *its, attn_mask=allowed, scale=scale, enable_gqa=enable_gqa
        )
        mixed[start:end] = heads.transpose(0, 1)
    return mixed
