"""Encoder of MPNet (Song et al. 2020, arXiv:2004.09297) over texts in a layout.

transformers' own computes attention over the whole matrix of a launch, and lets nothing else take
its place; this runs the same modules layer by layer.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from workers.engines.encoders.attention import Attention
from workers.engines.encoders.layouts import Layout


class MPNetEncoder(nn.Module):
    """Encoder of the modules of an `MPNetModel`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embeddings, self.pooler = model.embeddings, model.pooler
        self._layers, self._bias = model.encoder.layer, model.encoder.relative_attention_bias
        self._bucket_of = model.encoder.relative_position_bucket

    def forward(self, input_ids: Tensor, position_ids: Tensor, layout: Layout) -> BaseModelOutput:
        """Maps ids and positions [1, tokens] to states [1, tokens, hidden]."""
        # The bias depends on the distance of two tokens alone, and is the same in all layers.
        how = Attention(bias=self._bias_of)
        x = self.embeddings(input_ids, position_ids)[0]
        for layer in self._layers:
            own = layer.attention.attn
            shape = (len(x), own.num_attention_heads, own.attention_head_size)
            parts = (part(x).view(shape) for part in (own.q, own.k, own.v))
            x = layer.attention.LayerNorm(own.o(layout.attend(parts, how)) + x)
            x = layer.output(layer.intermediate(x), x)
        return BaseModelOutput(x[None])

    def _bias_of(self, tokens: int) -> Tensor:
        """Returns [heads, tokens, tokens]."""
        weight: Tensor = self._bias.weight  # [buckets, heads]
        away = torch.arange(1 - tokens, tokens, device=weight.device)
        by_distance = weight[self._bucket_of(away)].T  # [heads, 2 tokens - 1]
        at = torch.arange(tokens, device=weight.device)
        return by_distance[:, at[None, :] - at[:, None] + tokens - 1]
