"""Networks of Hugging Face's folders over the rows of a launch: packed, or padded.

transformers computes everything but the attention of a packed network, which it leaves to
`Layout.attend`: so its encoders take rows end to end, without padding, on every device. What a
network makes of one token a row (a pooler, a classifier) is run over those tokens alone.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions as Output

from jobs.models.engines import huggingface_folder
from workers.engines.common.device import Send
from workers.engines.encoders.attention import Attention
from workers.engines.encoders.layouts import CreateLayout, Layout
from workers.engines.encoders.mpnet import MPNetEncoder
from workers.engines.encoders.tokenize_pairs import Row, padded

_ATTENTION = "millrace-packed"  # name of `_attend` among the attentions of transformers


class FolderNetwork(Protocol):
    """Network of a folder, with its head, for one launch at a time in each thread."""

    def pooled(self, rows: Sequence[Row], pooling: str, send: Send) -> Tensor:
        """Returns float32 [rows, hidden]: the "mean" over the tokens of each row, or the state of
        its first ("cls") or "last" one."""
        ...

    def row_logits(self, rows: Sequence[Row], send: Send) -> Tensor:
        """Returns what the head computes for each row, float32 [rows, labels]."""
        ...

    def token_logits(self, rows: Sequence[Row], send: Send) -> Tensor:
        """Returns what the head computes for each token, float32 [tokens, labels]: those of all
        rows, in order."""
        ...


class PackedNetwork:
    """Network whose encoder takes rows end to end.

    network: one of transformers, of `huggingface_folder.PACKED`; its encoder is taken out of it.
    create: the layout of a launch.
    """

    def __init__(self, network: Any, config: Any, create: CreateLayout) -> None:
        base = network.base_model
        self._create, self._typed = create, takes_types(network, config)
        self._padding = _counted_from(base, config)
        self._head_pooling = _pooling_of_head(config)
        if has_bias(config):
            self._encoder: nn.Module = MPNetEncoder(base)
        else:
            network.set_attn_implementation(_ATTENTION)
            self._encoder = base
        if base is not network:
            pooler = getattr(base, "pooler", None)
            setattr(network, network.base_model_prefix, _GivenStates(pooler))
        self._head = network

    def pooled(self, rows: Sequence[Row], pooling: str, send: Send) -> Tensor:
        """Implements `FolderNetwork.pooled`."""
        layout, x = self._states(rows, send)
        if pooling == "mean":
            return layout.pool(x)
        ends = [len(row) - 1 if pooling == "last" else 0 for row in rows]
        return layout.pick(x, np.array(ends)).float()

    def row_logits(self, rows: Sequence[Row], send: Send) -> Tensor:
        """Implements `FolderNetwork.row_logits`."""
        layout, x = self._states(rows, send)
        if self._head_pooling == "mean":
            one_a_row = layout.pool(x).to(x.dtype)
        else:
            one_a_row = layout.pick(x, np.array([self._read_place(row) for row in rows]))
        return _logits(self._head(inputs_embeds=one_a_row[:, None]))

    def token_logits(self, rows: Sequence[Row], send: Send) -> Tensor:
        """Implements `FolderNetwork.token_logits`."""
        layout, x = self._states(rows, send)
        return _logits(self._head(inputs_embeds=layout.unpack(x)[None]))[0]

    def _read_place(self, row: Row) -> int:
        """Returns the token of a row that the head reads: of a decoder the last one that isn't the
        padding's, also where a text ends in that."""
        if self._head_pooling == "cls":
            return 0
        read = np.flatnonzero(row.ids != self._head.config.pad_token_id)
        return int(read[-1]) if len(read) else 0

    def _states(self, rows: Sequence[Row], send: Send) -> tuple[Layout, Tensor]:
        """Runs the encoder. Returns the layout, and the state of each of its tokens, [tokens,
        hidden]."""
        layout = self._create([row.ids for row in rows], send)
        positions = layout.positions
        if self._padding is not None:
            positions = layout.spread([_positions(row.ids, self._padding) for row in rows])
        given = {"input_ids": layout.ids[None], "position_ids": positions.long()[None]}
        if self._typed:
            given["token_type_ids"] = layout.spread([row.types for row in rows])[None]
        return layout, self._encoder(**given, layout=layout).last_hidden_state[0]


class PaddedNetwork:
    """Network that takes a matrix [rows, longest] and a mask, as all of transformers do."""

    def __init__(self, network: nn.Module, config: Any) -> None:
        self._network, self._typed = network, takes_types(network, config)
        self._padding = getattr(config, "pad_token_id", None) or 0

    def pooled(self, rows: Sequence[Row], pooling: str, send: Send) -> Tensor:
        """Implements `FolderNetwork.pooled`."""
        given = self._given(rows, send)
        states, mask = self._network(**given).last_hidden_state, given["attention_mask"]
        if pooling == "mean":
            counts = mask.sum(1, keepdim=True)
            means: Tensor = (states.float() * mask[:, :, None]).sum(1) / counts
            return means
        at = mask.sum(1) - 1 if pooling == "last" else torch.zeros_like(mask[:, 0])
        picked: Tensor = states[torch.arange(len(rows), device=at.device), at].float()
        return picked

    def row_logits(self, rows: Sequence[Row], send: Send) -> Tensor:
        """Implements `FolderNetwork.row_logits`."""
        return _logits(self._network(**self._given(rows, send)))

    def token_logits(self, rows: Sequence[Row], send: Send) -> Tensor:
        """Implements `FolderNetwork.token_logits`."""
        given = self._given(rows, send)
        return _logits(self._network(**given))[given["attention_mask"].bool()]

    def _given(self, rows: Sequence[Row], send: Send) -> Mapping[str, Tensor]:
        ids, types, mask = padded(rows, self._padding)
        given = {"input_ids": send(ids), "attention_mask": send(mask)}
        return given | {"token_type_ids": send(types)} if self._typed else given


class _GivenStates(nn.Module):
    """Stands in a network where its encoder was: passes on states that were computed before."""

    def __init__(self, pooler: nn.Module | None) -> None:
        super().__init__()
        self.pooler = pooler

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> Output:
        """inputs_embeds: the states, [rows, tokens, hidden]."""
        pooled = self.pooler(inputs_embeds) if self.pooler else None
        return Output(inputs_embeds, pooled)


def has_bias(config: Any) -> bool:
    """Returns True where attention adds a bias by the distance of tokens."""
    return bool(config.model_type == "mpnet")


def takes_types(network: nn.Module, config: Any) -> bool:
    """Returns True where the network tells segments of a row apart."""
    known = inspect.signature(network.forward).parameters
    return "token_type_ids" in known and (getattr(config, "type_vocab_size", 0) or 0) > 1


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: None,
    *,
    layout: Layout,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: of one row [1, heads, tokens, dim], which holds all rows
    of the launch. Returns [1, tokens, heads * dim]."""
    how = Attention(
        scale=scaling,
        causal=bool(getattr(module, "is_causal", True) if is_causal is None else is_causal),
        window=None if sliding_window is None else sliding_window - 1,
    )
    one = (part[0].transpose(0, 1) for part in (query, key, value))
    return layout.attend(one, how)[None], None


AttentionInterface.register(_ATTENTION, _attend)


def _counted_from(base: Any, config: Any) -> int | None:
    """Returns the id of the padding, for RoBERTa and its kin, which count positions from the one
    after it; None for all others. Raises ValueError."""
    if config.model_type not in huggingface_folder.COUNTED_FROM_PADDING:
        return None
    if base.embeddings.padding_idx is None:
        raise ValueError("config.json has no pad_token_id, from which positions are counted")
    return int(base.embeddings.padding_idx)


def _pooling_of_head(config: Any) -> str:
    """Returns how the head reduces a row to one token, before all else that it does."""
    decodes = config.model_type in huggingface_folder.DECODERS
    return "last" if decodes else getattr(config, "classifier_pooling", None) or "cls"


def _positions(ids: NDArray[np.int32], padding: int) -> NDArray[np.int32]:
    """Returns positions as RoBERTa counts them: padding has its own, and isn't counted."""
    real = ids != padding
    positions: NDArray[np.int32] = (np.cumsum(real) * real + padding).astype(np.int32)
    return positions


def _logits(returned: Any) -> Tensor:
    logits: Tensor = returned.logits.float()
    return logits
