"""Engine `encoder`: a BERT encoder of any size with random weights, for measurements."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from jobs.models.inputs.input_size import POSITIONS, WORDS
from workers.engines.encoders.embedding import Embedder

_SPREAD = 0.02  # standard deviation of the weights, as in BERT's initialization


class RandomEncoder(Embedder):
    """Encoder with the cost of BERT-large by default; its vectors mean nothing.

    `hidden`, `layers`, `heads` and `intermediate` are its shape, `vocabulary` the rows of the word
    embeddings, at least as many as MiniLM's tokenizer has words, `seed` determines the weights. The
    other options, and the params, are those of `Embedder`.
    """

    def __init__(
        self,
        hidden: int = 1024,
        layers: int = 24,
        heads: int = 16,
        intermediate: int = 4096,
        vocabulary: int = WORDS,
        seed: int = 0,
        **options: Any,
    ) -> None:
        if vocabulary < WORDS:
            raise ValueError(f"options.vocabulary is {vocabulary}; it takes {WORDS} at least")
        if hidden % heads:
            raise ValueError(f"options.hidden is {hidden}, which can't be shared by {heads} heads")
        shapes = dict(_shapes(hidden, layers, intermediate, vocabulary))
        super().__init__(partial(_weights, shapes, seed), heads, **options)


def _weights(
    shapes: Mapping[str, tuple[int, ...]], seed: int, place: torch.device
) -> Mapping[str, Tensor]:
    generator = torch.Generator(place).manual_seed(seed)
    return {name: _random(name, shape, generator) for name, shape in shapes.items()}


def _shapes(
    hidden: int, layers: int, intermediate: int, words: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields names and shapes of the parameters of `BertModel`, without the pooler."""
    for name, rows in (("word", words), ("position", POSITIONS), ("token_type", 2)):
        yield f"embeddings.{name}_embeddings.weight", (rows, hidden)
    yield from _affine("embeddings.LayerNorm", hidden)
    for n in range(layers):
        layer = f"encoder.layer.{n}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            yield from _affine(f"{layer}.attention.{name}", hidden, hidden)
        yield from _affine(f"{layer}.attention.output.LayerNorm", hidden)
        yield from _affine(f"{layer}.intermediate.dense", intermediate, hidden)
        yield from _affine(f"{layer}.output.dense", hidden, intermediate)
        yield from _affine(f"{layer}.output.LayerNorm", hidden)


def _affine(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if name.endswith("bias"):
        return torch.zeros(shape, device=generator.device)
    if "LayerNorm" in name:
        return torch.ones(shape, device=generator.device)
    return torch.randn(shape, generator=generator, device=generator.device).mul_(_SPREAD)
