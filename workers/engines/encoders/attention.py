"""Attention within the texts of a launch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch before 2.10
    varlen_attn = None  # type: ignore[assignment]

VARLEN_TYPES = (torch.float16, torch.bfloat16)
"""Types of numbers that the kernel for texts of any length takes."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Rule of which tokens of its text a token attends to, and how much."""

    scale: float | None = None  #: of the products of queries and keys; None: 1 / sqrt(dim)
    causal: bool = False  #: to itself and those before it alone
    window: int | None = None  #: to those at most so many tokens away
    #: what is added to the products of a text of so many tokens: [heads, tokens, tokens]
    bias: Callable[[int], Tensor] | None = None

    def padded(self, parts: Iterable[Tensor], real: Tensor | None = None) -> Tensor:
        """Runs over texts of one length, by torch's `scaled_dot_product_attention`.

        parts: query, key and value, each [texts, tokens, heads, dim]; the latter two may have fewer
        heads, each for as many of the query's. real: bool [texts, tokens], False for padding.
        Returns [texts, heads, tokens, dim].
        """
        query, key, value = (part.transpose(1, 2) for part in parts)
        tokens = query.shape[2]
        mask = self._mask(tokens, query, real)
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            mask,
            is_causal=self.causal and mask is None and tokens > 1,
            scale=self.scale,
            enable_gqa=key.shape[1] != query.shape[1],
        )

    def varlen(self, parts: Iterable[Tensor], starts: Tensor, longest: int) -> Tensor:
        """Runs over texts end to end, by torch's `varlen_attn`, for which no text is padded.

        parts: query, key and value, each [tokens, heads, dim]. starts: int32 [texts + 1], where
        each text begins, and the end of the last. Returns [tokens, heads, dim].
        """
        query, key, value = parts
        options: dict[str, Any] = {}
        if self.scale is not None:
            options["scale"] = self.scale
        if self.window is not None or self.causal:
            before = -1 if self.window is None else self.window
            options["window_size"] = (before, 0 if self.causal else before)
        if key.shape[1] != query.shape[1]:
            options["enable_gqa"] = True
        mixed = varlen_attn(query, key, value, starts, starts, longest, longest, **options)
        assert isinstance(mixed, Tensor)
        return mixed

    def _mask(self, tokens: int, like: Tensor, real: Tensor | None) -> Tensor | None:
        """Returns what is added to the products, or bool; None where nothing is masked that
        `is_causal` doesn't."""
        windowed = self.window is not None and self.window < tokens - 1
        mask: Tensor | None = None if real is None else real[:, None, None, :]
        if windowed or (self.causal and (mask is not None or self.bias)):
            allowed = self._allowed(tokens, like.device)
            mask = allowed if mask is None else mask & allowed
        if self.bias is None:
            return mask
        bias = self.bias(tokens).to(like.dtype)
        return bias if mask is None else bias.masked_fill(~mask, float("-inf"))

    def _allowed(self, tokens: int, place: torch.device) -> Tensor:
        """Returns bool [tokens, tokens]: those that each token attends to."""
        at = torch.arange(tokens, device=place)
        away = at[:, None] - at[None, :]
        allowed = away >= 0 if self.causal else torch.ones_like(away, dtype=torch.bool)
        return allowed if self.window is None else allowed & (away.abs() <= self.window)


def has_varlen(place: torch.device, dtype: torch.dtype) -> bool:
    """Returns True where `Attention.varlen` runs: on CUDA, with numbers of 16 bit."""
    return place.type == "cuda" and dtype in VARLEN_TYPES and varlen_attn is not None


FULL = Attention()
"""Attention of each token to all of its text."""
