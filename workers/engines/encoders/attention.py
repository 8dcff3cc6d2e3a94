"""Attention within the texts of a launch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from workers.engines.common import device as devices

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # of an older torch
    _VARLEN_OPTIONS = frozenset[str]()
else:
    _VARLEN_OPTIONS = frozenset(signature(varlen_attn).parameters)

_VARLEN_TYPES = (torch.float16, torch.bfloat16)
_HEAD_STEP, _LONGEST_HEAD = 8, 256  # numbers of a head, for `varlen_attn`


@dataclass(frozen=True, slots=True)
class Attention:
    """Rule of which tokens of its text a token attends to, and how much."""

    scale: float | None = None  #: of the products of queries and keys; None: 1 / sqrt(dim)
    causal: bool = False  #: to itself and those before it alone
    window: int | None = None  #: to those at most so many tokens away
    #: what is added to the products of a text of so many tokens: [heads, tokens, tokens]
    bias: Callable[[int], Tensor] | None = None

    def padded(self, parts: Iterable[Tensor], mask: Tensor | None = None) -> Tensor:
        """Runs over texts of one length, by torch's `scaled_dot_product_attention`.

        parts: query, key and value, each [texts, tokens, heads, dim]; the latter two may have fewer
        heads, each for as many of the query's. mask: made by `mask`. Returns [texts, heads, tokens,
        dim].
        """
        query, key, value = (part.transpose(1, 2) for part in parts)
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            mask,
            is_causal=self.causal and mask is None and query.shape[2] > 1,
            scale=self.scale,
            enable_gqa=key.shape[1] != query.shape[1],
        )

    def varlen(self, parts: Iterable[Tensor], starts: Tensor, longest: int) -> Tensor:
        """Runs over texts end to end, by torch's `varlen_attn`, for which no text is padded.

        parts: query, key and value, each [tokens, heads, dim]. starts: int32 [texts + 1], where
        each text begins, and the end of the last. Returns [tokens, heads, dim].
        """
        query, key, value = parts
        dim, options = query.shape[2], dict[str, Any]()
        if missing := -dim % _HEAD_STEP:  # zeros change no product, but the scale
            query, key, value = (F.pad(part, (0, missing)) for part in (query, key, value))
        if self.scale is not None or missing:
            options["scale"] = dim**-0.5 if self.scale is None else self.scale
        if self.window is not None or self.causal:
            before = -1 if self.window is None else self.window
            options["window_size"] = (before, 0 if self.causal else before)
        if (times := query.shape[1] // key.shape[1]) > 1:
            if "enable_gqa" in _VARLEN_OPTIONS:
                options["enable_gqa"] = True
            else:
                key, value = (part.repeat_interleave(times, dim=1) for part in (key, value))
        mixed = varlen_attn(query, key, value, starts, starts, longest, longest, **options)
        assert isinstance(mixed, Tensor)
        return mixed[:, :, :dim]

    def mask(self, tokens: int, like: Tensor, real: Tensor | None = None) -> Tensor | None:
        """Returns what is added to the products of texts of so many tokens, or bool; None where
        nothing is masked but by `causal`.

        like: a tensor of the products' type and place. real: bool [texts, tokens], False for
        padding.
        """
        mask = None if real is None else real[:, None, None, :]
        windowed = self.window is not None and self.window < tokens - 1
        if windowed or (self.causal and (real is not None or self.bias)):
            mask = self._allowed(tokens, like.device)
            if real is not None:  # padding attends to all, or some of it would attend to nothing
                mask = (mask & real[:, None, None, :]) | ~real[:, None, :, None]
        if self.bias is None:
            return mask
        bias = self.bias(tokens).to(like.dtype)
        return bias if mask is None else bias.masked_fill(~mask, float("-inf"))

    def _allowed(self, tokens: int, place: torch.device) -> Tensor:
        """Returns bool [tokens, tokens]: those that each token attends to."""
        window = tokens if self.window is None else self.window
        allowed = torch.ones(tokens, tokens, dtype=torch.bool, device=place)
        return allowed.tril_(0 if self.causal else window).triu_(-window)


def has_varlen(place: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Returns True where `Attention.varlen` runs: numbers of 16 bit, on a GPU of NVIDIA's from
    Ampere on, with a torch that knows its options."""
    return (
        dtype in _VARLEN_TYPES
        and head_size <= _LONGEST_HEAD
        and {"scale", "window_size"} <= _VARLEN_OPTIONS
        and devices.is_ampere(place)
    )


FULL = Attention()
"""Attention of each token to all of its text."""
