"""Messages between the engine and its child process, pickled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from jobs.models.adapters import Adapter
from workers.engines.generator import Capacity, NewSequence
from workers.engines.transformers.structured.compiler import Vocabulary


@dataclass(frozen=True, slots=True)
class Options:
    """First message to the child: what it loads."""

    path: str  #: folder
    dtype: str
    quantization: str  #: of the weights: "" or "int8"
    device: str  #: of torch; "": CUDA where there is one
    threads: int
    blocks: int  #: of the KV cache; 0: by `cache_mb`
    cache_mb: int  #: of the KV cache; 0: a default for the device
    block_tokens: int  #: 0: a default for the device
    sequences: int  #: most of a step
    adapter_slots: int  #: adapters at a time
    adapters: Sequence[Adapter]  #: declared by now, for the memory plan
    context_tokens: int  #: most of a sequence; 0: as many as the model takes


@dataclass(frozen=True, slots=True)
class Loaded:
    """Answer to the options."""

    capacity: Capacity
    vocabulary: int  #: token ids are below it
    memory_mb: float
    grammars: Vocabulary  #: tokens that grammars may allow


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Adapter to load into a slot."""

    slot: int
    adapter: Adapter
    at_once: bool = False  #: before the changes that follow, which need it


Change: TypeAlias = NewSequence | str | LoadAdapter
"""Sequence to add, id of one to abort, or adapter to load."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Message for one step, which is answered with a Step."""

    changes: list[Change]  #: in order
    max_prefill_tokens: int
    prefills: Sequence[str]  #: ids, as of `Generator.step`
