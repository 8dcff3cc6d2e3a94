"""Shapes of a causal language model, read from its folder without torch.

config.json tells layers and heads, the header of model.safetensors the size of each weight.
"""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from json import loads
from math import prod
from pathlib import Path
from typing import Any

from jobs.models import adapters
from jobs.models.adapters import MATRIX, Adapter
from jobs.models.engines import huggingface_folder
from jobs.models.engines.huggingface_folder import CONFIG, WEIGHTS

_MOST_HEADER = 1 << 27  # bytes
_METADATA = "__metadata__"
COMMON_RANK = 16
"""Rank of adapters, where it isn't known."""


@dataclass(frozen=True)
class NetworkShape:
    """Sizes of a network; parameters are numbers, not bytes."""

    layers: int
    kv_heads: int  #: fewer than heads where several share keys and values (GQA)
    head_size: int
    hidden: int
    intermediate: int
    vocabulary: int
    context_tokens: int  #: most of a sequence
    weights: Mapping[str, tuple[int, ...]]  #: shapes by name; {}: not known

    @cached_property
    def parameters(self) -> int:
        """Parameters in all."""
        return sum(map(prod, self.weights.values()))

    @cached_property
    def embedding(self) -> int:
        """Parameters of the embedding of tokens."""
        return sum(prod(shape) for name, shape in self.weights.items() if _is_embedding(name))

    @property
    def shares_embedding(self) -> bool:
        """True where the last layer is the embedding."""
        return not any(name.startswith("lm_head.") for name in self.weights)

    @cached_property
    def linear(self) -> int:
        """Parameters of linear layers."""
        return sum(map(prod, self._linear))

    @cached_property
    def linear_rows(self) -> int:
        """Rows of the matrices of linear layers."""
        return sum(shape[0] for shape in self._linear)

    def token_bytes(self, number_bytes: int) -> int:
        """Returns the bytes of a token's keys and values in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * number_bytes

    def adapter_parameters(self, rank: int, layers: Collection[str] | None = None) -> int:
        """Returns the parameters of an adapter of some linear layers; None: of all but the last."""
        sizes = {name.removesuffix(".weight"): its for name, its in self._linear_weights.items()}
        sizes.pop("lm_head", None)
        return rank * sum(
            sum(its) for name, its in sizes.items() if layers is None or name in layers
        )

    @cached_property
    def _linear_weights(self) -> Mapping[str, tuple[int, ...]]:
        return {n: s for n, s in self.weights.items() if len(s) == 2 and not _is_embedding(n)}

    @property
    def _linear(self) -> list[tuple[int, ...]]:
        return list(self._linear_weights.values())


def read_shape(folder: Path) -> NetworkShape:
    """Reads the shapes of a folder. Raises ValueError."""
    config = huggingface_folder.read(folder, CONFIG)
    config = config.get("text_config") or config
    try:
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        return NetworkShape(
            layers=int(config["num_hidden_layers"]),
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden // heads),
            hidden=hidden,
            intermediate=int(config.get("intermediate_size") or 4 * hidden),
            vocabulary=int(config["vocab_size"]),
            context_tokens=int(config.get("max_position_embeddings") or 0),
            weights=_shapes(folder / WEIGHTS),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / CONFIG} doesn't tell the model's shape: {error}") from error


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """Rank of an adapter, and the layers that it changes."""

    rank: int
    layers: frozenset[str] | None  #: None: not known


def read_adapter_shape(adapter: Adapter) -> AdapterShape:
    """Reads the shape of an adapter in a folder; of one in S3, or broken, it isn't known."""
    folder = Path(adapter.path)
    try:
        rank = adapters.read_config(folder).rank
        matrices = map(MATRIX.fullmatch, _shapes(folder / adapters.WEIGHTS))
        layers = frozenset(one[1] for one in matrices if one)
    except (OSError, KeyError, TypeError, ValueError, struct.error):
        return AdapterShape(COMMON_RANK, None)
    return AdapterShape(rank, layers or None)


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Reads the header of a file of safetensors; {} where there is none."""
    if not file.is_file():
        return {}
    with file.open("rb") as opened:
        (size,) = struct.unpack("<Q", opened.read(8))
        if size > _MOST_HEADER:
            raise ValueError(f"{file} is no file of safetensors")
        header: dict[str, Any] = loads(opened.read(size))
    return {name: tuple(one["shape"]) for name, one in header.items() if name != _METADATA}


def _is_embedding(name: str) -> bool:
    return "embed" in name or ".wte." in f".{name}"
