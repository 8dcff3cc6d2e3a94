"""Comparison of a paged network with the model alone, before it serves anybody."""

from itertools import pairwise
from typing import Any

import torch

from jobs.models.inputs.generation import GenerationRequest, Sampling
from workers.engines.generator import NewSequence, Prompt
from workers.engines.transformers.child.network import PagedNetwork
from workers.engines.transformers.child.sequences import Chunk, LiveSequence

TOKENS = 24
"""Tokens of the sample."""

_CUTS = (0, 9, 23, TOKENS)  # a chunk, one after it, and a decoded token
_TOLERANCE = {torch.float32: 1e-3}  # of the largest logit
_TOLERANCE_16_BIT = 0.05


@torch.inference_mode()
def reference_logits(model: Any) -> torch.Tensor:
    """Returns the logits after the last token of a sample, by the model as it is loaded."""
    tokens = torch.tensor([_sample(model.get_input_embeddings().num_embeddings)])
    logits: torch.Tensor = model(tokens.to(model.device), use_cache=False).logits[0, -1]
    return logits.float()


def check(
    network: PagedNetwork, expected: torch.Tensor, dtype: torch.dtype, block_tokens: int
) -> None:
    """Computes the same sample in pieces. Raises ValueError where its logits differ."""
    prompt = Prompt(_sample(network.vocabulary), TOKENS, GenerationRequest())
    sequence = LiveSequence(NewSequence("check", prompt, Sampling()), None, frozenset())
    sequence.blocks = list(range(1, 2 + TOKENS // block_tokens))
    for start, end in pairwise(_CUTS):
        chunk = Chunk(sequence, start, end, False)
        logits = network.logits([chunk], [end - start - 1])
    network.clear(sequence.blocks)
    most = expected.abs().max() * _TOLERANCE.get(dtype, _TOLERANCE_16_BIT)
    if not (logits[0] - expected).abs().max() <= most:
        raise ValueError(
            "the model computes something else in a batch than alone: its attention is not served"
        )


def _sample(vocabulary: int) -> list[int]:
    return [(7 * n + 5) % vocabulary for n in range(TOKENS)]
