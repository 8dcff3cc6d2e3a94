"""BERT encoder over one [tokens, hidden] matrix, for any layout of the texts in it.

Parameter names are those of Hugging Face's `BertModel`; the model is Devlin et al. 2018,
arXiv:1810.04805.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from workers.engines.adapters.lora import Lora, Rows, Shapes
from workers.engines.encoders.layouts import Layout
from workers.engines.preemption import yield_point

NORM_EPSILON = 1e-12

_onednn = torch.ops.mkldnn


class Linear:
    """Maps x [tokens, in] to [tokens, out] with weight [out, in] and bias [out].

    parts: names of the layers that it computes, whose outputs lie beside one another, in equal
    shares of out."""

    def __init__(self, weight: Tensor, bias: Tensor, *parts: str) -> None:
        size_out, self.size_in = weight.shape
        self.size_out = size_out // len(parts)
        starts = range(0, size_out, self.size_out)
        self.columns = {
            name: slice(start, start + self.size_out)
            for name, start in zip(parts, starts, strict=True)
        }
        # oneDNN with its own layout of the weights is 13 % faster over a job than MKL (AMD EPYC);
        # torch has no public name for it, its compiler uses these two calls.
        has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
        self._packed = has_onednn and on_cpu
        self._weight = _onednn._reorder_linear_weight(weight, None) if self._packed else weight
        self._bias = bias

    def __call__(self, x: Tensor, adapters: Sequence[tuple[Rows, Lora]] = ()) -> Tensor:
        """adapters: of rows, to which they add."""
        yield_point()
        y: Tensor
        if self._packed:
            y = _onednn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        else:
            y = F.linear(x, self._weight, self._bias)
        for rows, lora in adapters:
            for name, columns in self.columns.items():
                lora.add(name, x, y[:, columns], rows)
        return y


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over the last dimension."""

    weight: Tensor  #: [hidden]
    bias: Tensor  #: [hidden]

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.bias.shape, self.weight, self.bias, NORM_EPSILON)


class Encoder:
    """Maps token ids to one mean-pooled vector a text.

    `weights` is the state dict of BertModel, already on the device; `heads` the number of attention
    heads, which must divide the hidden size.
    """

    def __init__(self, weights: Mapping[str, Tensor], heads: int) -> None:
        embeddings = "embeddings.{}_embeddings.weight".format
        self._words = weights[embeddings("word")]
        self.hidden = self._words.shape[1]
        # One segment only: its type embedding is folded into the positions.
        self._positions = weights[embeddings("position")] + weights[embeddings("token_type")][0]
        self._norm = Norm(*_affine(weights, "embeddings.LayerNorm"))
        layers = sum(name.endswith("attention.self.query.weight") for name in weights)
        self._layers = [Layer(weights, f"encoder.layer.{i}", heads) for i in range(layers)]
        #: sizes (in, out) of the layers that adapters may change, by name
        self.shapes: Shapes = {
            name: (linear.size_in, linear.size_out)
            for layer in self._layers
            for linear in layer.linears
            for name in linear.columns
        }
        self.dtype, self.device = self._words.dtype, self._words.device

    def __call__(self, texts: Layout) -> Tensor:
        """Returns float32 [texts, hidden], each the mean over the tokens of a text."""
        words = F.embedding(texts.ids, self._words)
        x = self._norm(words + F.embedding(texts.positions, self._positions))
        for layer in self._layers:
            x = layer(x, texts)
        return texts.pool(x)


class Layer:
    """Transformer layer: self-attention and feed-forward, each with residual, then norm."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, heads: int) -> None:
        self._heads = heads
        names = [f"{prefix}.attention.self.{name}" for name in ("query", "key", "value")]
        weight, bias = zip(*(_affine(weights, name) for name in names), strict=True)
        self._qkv = Linear(torch.cat(weight), torch.cat(bias), *names)
        self._out = _linear(weights, f"{prefix}.attention.output.dense")
        self._attention_norm = Norm(*_affine(weights, f"{prefix}.attention.output.LayerNorm"))
        self._up = _linear(weights, f"{prefix}.intermediate.dense")
        self._down = _linear(weights, f"{prefix}.output.dense")
        self._output_norm = Norm(*_affine(weights, f"{prefix}.output.LayerNorm"))

    @property
    def linears(self) -> Sequence[Linear]:
        """Its linear layers."""
        return self._qkv, self._out, self._up, self._down

    def __call__(self, x: Tensor, texts: Layout) -> Tensor:
        """Maps [tokens, hidden] to the same shape."""
        adapters = texts.adapters
        shape = (len(x), 3, self._heads, -1)
        mixed = texts.attend(self._qkv(x, adapters).view(shape).unbind(1))
        x = self._attention_norm(self._out(mixed, adapters).add_(x))
        # In place: a fresh [tokens, 4 hidden] costs more in page faults than the GELU itself.
        hidden = torch.ops.aten.gelu_(self._up(x, adapters))
        return self._output_norm(self._down(hidden, adapters).add_(x))


def _linear(weights: Mapping[str, Tensor], name: str) -> Linear:
    return Linear(*_affine(weights, name), name)


def _affine(weights: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return (weights[f"{name}.weight"], weights[f"{name}.bias"])
