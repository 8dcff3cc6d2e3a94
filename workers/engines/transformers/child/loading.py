"""Loading of a model in the child process: weights, cache and tokenizer, as the options say."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from tokenizers import Tokenizer

from jobs.models.engines import huggingface_folder
from workers.engines.generator import Capacity
from workers.engines.transformers.child import network, self_check
from workers.engines.transformers.child.batch import Batch
from workers.engines.transformers.messages import Loaded, Options

_MIB = 1 << 20
_CPU_CACHE_MB = 1024
_CUDA_SHARE = 0.85  # of the memory that is free once the weights are loaded
_CPU_BLOCK_TOKENS = 16
_CUDA_BLOCK_TOKENS = 64


def load(options: Options) -> tuple[Batch, Loaded]:
    """Loads a model, and checks it. Raises ValueError where folder or options don't fit."""
    torch.set_num_threads(options.threads)
    folder = Path(options.path)
    place = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = network.load_model(folder, options.dtype, place)
    expected = self_check.reference_logits(model)
    on_cpu = place.type == "cpu"
    block_tokens = options.block_tokens or (_CPU_BLOCK_TOKENS if on_cpu else _CUDA_BLOCK_TOKENS)
    block_bytes = network.block_bytes(model, block_tokens)
    context = min(options.context_tokens or 1 << 31, network.context_tokens(model))
    needed = options.sequences * -(-context // block_tokens)
    blocks = options.blocks or min(needed, _cache_bytes(options, place) // block_bytes)
    if blocks * block_tokens <= self_check.TOKENS:
        raise ValueError(f"{blocks} blocks are too few; set options.blocks or options.cache_mb")
    ends = end_tokens(folder)
    paged = network.PagedNetwork(model, blocks, block_tokens, ends)
    self_check.check(paged, expected, model.dtype, block_tokens)
    capacity = Capacity(
        blocks, block_tokens, options.sequences, min(context, blocks * block_tokens)
    )
    memory_mb = network.weights_mb(model) + blocks * block_bytes / _MIB
    tokenizer = Tokenizer.from_file(str(folder / huggingface_folder.TOKENIZER))
    return Batch(paged, tokenizer, ends, capacity), Loaded(capacity, paged.vocabulary, memory_mb)


def end_tokens(folder: Path) -> frozenset[int]:
    """Returns the ids that end a sequence, by generation_config.json or else config.json."""
    for name in ("generation_config.json", huggingface_folder.CONFIG):
        found = huggingface_folder.read(folder, name).get("eos_token_id")
        if found is not None:
            return frozenset([found] if isinstance(found, int) else found)
    return frozenset()


def _cache_bytes(options: Options, place: torch.device) -> int:
    if options.cache_mb:
        return options.cache_mb * _MIB
    if place.type != "cuda":
        return _CPU_CACHE_MB * _MIB
    return int(torch.cuda.mem_get_info(place)[0] * _CUDA_SHARE)
