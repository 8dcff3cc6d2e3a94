"""Messages between the engine and its child process, pickled."""

from dataclasses import dataclass

from workers.engines.generator import Capacity, NewSequence


@dataclass(frozen=True, slots=True)
class Options:
    """First message to the child: what it loads."""

    path: str  #: folder
    dtype: str
    device: str  #: of torch; "": CUDA where there is one
    threads: int
    blocks: int  #: of the KV cache; 0: by `cache_mb`
    cache_mb: int  #: of the KV cache; 0: a default for the device
    block_tokens: int  #: 0: a default for the device
    sequences: int  #: most of a step
    context_tokens: int  #: most of a sequence; 0: as many as the model takes


@dataclass(frozen=True, slots=True)
class Loaded:
    """Answer to the options."""

    capacity: Capacity
    vocabulary: int  #: token ids are below it
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Message for one step, which is answered with a Step."""

    changes: list[NewSequence | str]  #: sequences to add, and ids to abort, in order
    max_prefill_tokens: int
