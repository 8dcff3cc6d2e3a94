"""Weights of 8 bits: linear layers whose rows are whole numbers, each row with a scale.

Only weights are quantized, symmetrically by row, and without any data: what a token becomes doesn't
depend on the tokens beside it. The products are computed in bfloat16, and returned in the type of
their input.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LARGEST = 127
_FEW_ROWS = 32
"""Up to which torch's kernel for 8-bit weights is faster than to unpack them first (on CPUs)."""
_KERNEL_COLUMNS = 32
"""That kernel reads columns in blocks: of another number it reads past the end of the weights."""


class Int8Rows(nn.Module):
    """Matrix of 8-bit numbers [rows, columns], and the scale of each row."""

    values: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        scales = weight.abs().amax(1, keepdim=True).float() / _LARGEST
        scales[scales == 0] = 1
        values = (weight.float() / scales).round().to(torch.int8)
        self.register_buffer("values", values)
        self.register_buffer("scales", scales[:, 0].to(torch.bfloat16))


class Int8Linear(nn.Module):
    """Linear layer of such a matrix."""

    def __init__(self, rows: Int8Rows, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = rows.values.shape
        self.rows = rows
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns inputs [..., in_features] times the matrix."""
        values, scales = self.rows.values, self.rows.scales
        rows = inputs.reshape(-1, self.in_features).to(torch.bfloat16)
        fits = rows.device.type == "cpu" and self.in_features % _KERNEL_COLUMNS == 0
        if fits and len(rows) <= _FEW_ROWS:
            product = torch._weight_int8pack_mm(rows.contiguous(), values, scales)
        else:
            product = functional.linear(rows, values.to(torch.bfloat16)) * scales
        product = product.to(inputs.dtype).reshape(*inputs.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


class Int8Embedding(nn.Module):
    """Embedding that shares its matrix with the last layer."""

    def __init__(self, rows: Int8Rows, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = rows.values.shape
        self.rows, self._dtype = rows, dtype

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the rows of tokens."""
        scaled = self.rows.values[tokens].to(self._dtype)
        return scaled * self.rows.scales[tokens].unsqueeze(-1).to(self._dtype)


def quantize(model: Any) -> None:
    """Replaces the linear layers of a causal language model, one after the other, so that no more
    than one is held twice; and its embedding where the last layer shares it."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is not None and head.weight is embedding.weight:
        rows = Int8Rows(head.weight.detach())
        model.set_output_embeddings(Int8Linear(rows, head.bias))
        model.set_input_embeddings(Int8Embedding(rows, embedding.weight.dtype))
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            bias = module.bias
            parent = model.get_submodule(name.rpartition(".")[0])
            rows = Int8Rows(module.weight.detach())
            setattr(parent, name.rpartition(".")[2], Int8Linear(rows, bias))
            module.weight = None  # type: ignore[assignment]  # the list still holds the layer
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()  # the file stays mapped while one is a part of it
