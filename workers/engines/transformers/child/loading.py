"""Loading of a model in the child process: weights, cache and tokenizer, as the options say."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from tokenizers import Tokenizer

from jobs.models import memory_plan, network_shape
from jobs.models.engines import huggingface_folder
from jobs.models.memory_plan import PlannedOptions
from jobs.processes import memory
from workers.engines.generator import Capacity
from workers.engines.transformers.child import network, self_check
from workers.engines.transformers.child.adapters import LoadedAdapters
from workers.engines.transformers.child.batch import Batch
from workers.engines.transformers.messages import Loaded, Options
from workers.engines.transformers.structured.compiler import Vocabulary
from workers.engines.transformers.structured.masks import MaskMaker
from workers.engines.transformers.structured.matching import Grammars

_MIB = 1 << 20


def load(options: Options) -> tuple[Batch, LoadedAdapters, Loaded]:
    """Loads a model, and checks it. Raises ValueError where folder or options don't fit."""
    torch.set_num_threads(options.threads)
    folder = Path(options.path)
    place = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_cpu = place.type == "cpu"
    planned = memory_plan.with_defaults(options, on_cpu=on_cpu, adapters=options.adapters)
    adapter_bytes = _check_memory(folder, planned, place)
    model = network.load_model(folder, options.dtype, place, options.quantization)
    expected = self_check.reference_logits(model)
    block_tokens = planned.block_tokens
    block_bytes = network.block_bytes(model, block_tokens)
    context = min(options.context_tokens or 1 << 31, network.context_tokens(model))
    needed = options.sequences * -(-context // block_tokens)
    room = _cache_bytes(planned, place, adapter_bytes)
    blocks = options.blocks or min(needed, room // block_bytes)
    if blocks * block_tokens <= self_check.TOKENS:
        raise ValueError(f"{blocks} blocks are too few; set options.blocks or options.cache_mb")
    ends = end_tokens(folder)
    tokenizer_file = str(folder / huggingface_folder.TOKENIZER)
    tokenizer = Tokenizer.from_file(tokenizer_file)
    most = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0) + 1
    vocabulary = Vocabulary(
        tokenizer_file,
        max(most, network.vocabulary(model)),
        tuple(sorted(filter(range(most).__contains__, ends))),
    )
    masks = MaskMaker(vocabulary.size, options.threads)
    adapters = LoadedAdapters(model, options.adapter_slots)
    paged = network.PagedNetwork(model, blocks, block_tokens, masks, adapters)
    precision = torch.bfloat16 if options.quantization else model.dtype
    self_check.check(paged, expected, precision, block_tokens)
    capacity = Capacity(
        blocks, block_tokens, options.sequences, min(context, blocks * block_tokens)
    )
    memory_mb = network.weights_mb(model) + (blocks * block_bytes + adapter_bytes) / _MIB
    batch = Batch(paged, tokenizer, ends, capacity, Grammars(vocabulary))
    return batch, adapters, Loaded(capacity, paged.vocabulary, memory_mb, vocabulary)


def end_tokens(folder: Path) -> frozenset[int]:
    """Returns the ids that end a sequence, by generation_config.json or else config.json."""
    for name in ("generation_config.json", huggingface_folder.CONFIG):
        found = huggingface_folder.read(folder, name).get("eos_token_id")
        if found is not None:
            return frozenset([found] if isinstance(found, int) else found)
    return frozenset()


def _check_memory(folder: Path, options: PlannedOptions, place: torch.device) -> int:
    """Returns the bytes that its adapters take. Raises ValueError where the model doesn't fit what
    is free on the device."""
    try:
        shape = network_shape.read_shape(folder)
    except ValueError:
        return 0  # its configuration doesn't tell
    plan = memory_plan.make_plan(folder.name, shape, options, _free_bytes(place))
    if problem := plan.problem():
        raise ValueError(problem)
    return plan.adapters


def _free_bytes(place: torch.device) -> int:
    if place.type == "cuda":
        free: int = torch.cuda.mem_get_info(place)[0]
        return free
    return memory.available_bytes()


def _cache_bytes(options: PlannedOptions, place: torch.device, adapters: int) -> int:
    if options.cache_mb:
        return options.cache_mb * _MIB
    return int((_free_bytes(place) - adapters) * memory_plan.CACHE_SHARE)
