"""Memory plan of a model that generates: what it takes on its device, and what fits beside it.

weights    by type of number, and by quantization: 8-bit rows with a scale each
KV cache   keys and values of tokens, by the heads that have some of their own (GQA)
adapters   slots, each with the largest rank, for the layers that any of the adapters changes
workspace  of a step: activations, logits; and the process itself
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.models.adapters import Adapter
from jobs.models.network_shape import (
    COMMON_RANK,
    AdapterShape,
    NetworkShape,
    read_adapter_shape,
)

MIB = 1 << 20
NUMBER_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
CACHE_SHARE = 0.85
"""Share of the memory that the weights leave on a GPU, which the KV cache takes."""

_CPU_CACHE_MB = 1024
_CPU_BLOCK_TOKENS, _CUDA_BLOCK_TOKENS = 16, 64
_SCALE_BYTES = 2
_STEP_TOKENS = 2048  # of prompts, in the largest step
_ACTIVATIONS = 6  # of the hidden size, that a token of a step has at a time
_LOGITS_COPIES = 3
_PROCESS_BYTES = {"cpu": 450 * MIB, "cuda": 700 * MIB}  # libraries; on a GPU its context
_CONTEXTS = (512, 2048, 8192, 32_768, 131_072)  # tokens, for which sequences are told


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of one model on one device, bytes."""

    model: str
    weights: int
    cache: int
    adapters: int
    workspace: int
    loading: int  #: most while it is being loaded, before the cache is there
    cache_tokens: int  #: tokens that the cache holds
    token_bytes: int  #: of the cache, of one token
    adapter_bytes: int  #: of one adapter of rank COMMON_RANK
    context_tokens: int  #: most of a sequence
    available: int = 0  #: on the device; 0: not known
    sequences: int = 0  #: most of a step
    weights_int8: int = 0  #: as `weights`, were they quantized; 0: they are
    slots: int = 0  #: of adapters; 0: it has none

    @property
    def needed(self) -> int:
        """Memory in all."""
        return max(
            self.weights + self.cache + self.adapters + self.workspace,
            self.loading + self.workspace,
        )

    @property
    def left(self) -> int:
        """Memory that nothing takes; negative where the model doesn't fit."""
        return self.available - self.needed

    def sequences_of(self, tokens: int) -> int:
        """Returns how many sequences of so many tokens the cache holds."""
        return min(self.sequences, self.cache_tokens // tokens)

    def problem(self) -> str:
        """Returns why the model doesn't fit, and what to change; "" where it does."""
        if not self.available or self.left >= 0:
            return ""
        quantize = ', set quantization = "int8"' if self.weights_int8 else ""
        return (
            f"the model takes {_mib(self.needed)} ({self._parts()}), and {_mib(self.available)} "
            "are free: lower options.cache_mb, options.blocks or options.sequences"
            f"{quantize}, or use a larger device"
        )

    def lines(self) -> Iterator[str]:
        """Yields the plan for people."""
        free = f" of {_mib(self.available)} that are free" if self.available else ""
        yield f"{self.model}: takes {_mib(self.needed)}{free}"
        for name, size, note in self._table():
            yield f"{name:>10} {size / MIB:10.1f} MiB  {note}"
        if self.weights_int8:
            yield f'with quantization = "int8" the weights are {_mib(self.weights_int8)}'
        fits = [
            f"{self.sequences_of(tokens)} of {tokens}"
            for tokens in sorted({*_CONTEXTS, self.context_tokens})
            if tokens <= self.context_tokens
        ]
        yield f"sequences at a time, by their tokens: {', '.join(fits)}"
        if self.available and self.left >= 0 and self.adapter_bytes:
            adapters, tokens = self.left // self.adapter_bytes, self.left // self.token_bytes
            yield (
                f"{_mib(self.left)} are left: {adapters} more adapters of rank {COMMON_RANK} "
                f"({_mib(self.adapter_bytes)} each), or {tokens} more tokens of KV cache"
            )
        if problem := self.problem():
            yield f"it doesn't fit: {problem}"

    def as_json(self) -> dict[str, object]:
        """Returns the plan as an object; sizes in MiB."""
        return {
            "memory_mb": round(self.needed / MIB, 1),
            "weights_mb": round(self.weights / MIB, 1),
            "cache_mb": round(self.cache / MIB, 1),
            "adapters_mb": round(self.adapters / MIB, 1),
            "workspace_mb": round(self.workspace / MIB, 1),
            "available_mb": round(self.available / MIB, 1),
            "cache_tokens": self.cache_tokens,
            "sequences": self.sequences_of(max(1, self.context_tokens)),
            "fits": not self.problem(),
        }

    def _table(self) -> Iterator[tuple[str, int, str]]:
        yield "weights", self.weights, ""
        yield "KV cache", self.cache, f"{self.cache_tokens} tokens of {self.token_bytes} bytes"
        yield "adapters", self.adapters, f"{self.slots} slots" if self.slots else ""
        yield "workspace", self.workspace, "a step, and the process; an estimate"
        if self.loading + self.workspace == self.needed:
            yield "loading", self.loading, "before the weights are quantized"

    def _parts(self) -> str:
        return ", ".join(f"{name} {_mib(size)}" for name, size, _ in self._table() if size)


@dataclass(frozen=True, slots=True)
class PlannedOptions:
    """Options of an engine that decide about memory, with their defaults filled in."""

    dtype: str
    quantization: str  #: "" or "int8"
    block_tokens: int
    blocks: int  #: 0: by `cache_mb`
    cache_mb: int  #: 0: `CACHE_SHARE` of what the weights leave
    sequences: int
    context_tokens: int  #: 0: the model's
    adapters: Sequence[AdapterShape]  #: of those that are declared
    adapter_slots: int
    on_cpu: bool


class CacheOptions(Protocol):
    """Options of the engine `transformers`, as far as they decide about memory."""

    @property
    def dtype(self) -> str:
        """Type of numbers."""
        ...

    @property
    def quantization(self) -> str:
        """Quantization of the weights: "" or "int8"."""
        ...

    @property
    def block_tokens(self) -> int:
        """Tokens of a block; 0: a default for the device."""
        ...

    @property
    def blocks(self) -> int:
        """Blocks of the KV cache; 0: by `cache_mb`."""
        ...

    @property
    def cache_mb(self) -> int:
        """Size of the KV cache, MiB; 0: a default for the device."""
        ...

    @property
    def sequences(self) -> int:
        """Most sequences of a step."""
        ...

    @property
    def context_tokens(self) -> int:
        """Most tokens of a sequence; 0: the model's."""
        ...

    @property
    def adapter_slots(self) -> int:
        """Adapters in memory at a time."""
        ...


def with_defaults(
    options: CacheOptions, *, on_cpu: bool, adapters: Sequence[Adapter] = ()
) -> PlannedOptions:
    """Fills in the defaults of a device. adapters: those that are declared."""
    return PlannedOptions(
        dtype=options.dtype,
        quantization=options.quantization,
        block_tokens=options.block_tokens or (_CPU_BLOCK_TOKENS if on_cpu else _CUDA_BLOCK_TOKENS),
        blocks=options.blocks,
        cache_mb=options.cache_mb or (_CPU_CACHE_MB if on_cpu else 0),
        sequences=options.sequences,
        context_tokens=options.context_tokens,
        adapters=tuple(map(read_adapter_shape, adapters)),
        adapter_slots=options.adapter_slots,
        on_cpu=on_cpu,
    )


def make_plan(
    model: str, shape: NetworkShape, options: PlannedOptions, available: int = 0
) -> MemoryPlan:
    """Returns the plan of a model. available: bytes free on its device; 0: not known."""
    number = NUMBER_BYTES[options.dtype]
    full, quantized = shape.parameters * number, weight_bytes(shape, number, "int8")
    weights = quantized if options.quantization else full
    context = min(options.context_tokens or shape.context_tokens, shape.context_tokens)
    workspace = _workspace(shape, options, number)
    block = shape.token_bytes(number) * options.block_tokens
    adapters = adapter_bytes(shape, options)
    share = int((available - weights - adapters) * CACHE_SHARE)
    room = options.cache_mb * MIB if options.cache_mb else max(0, share)
    most = options.sequences * -(-context // options.block_tokens)
    blocks = options.blocks or min(most, room // block)
    return MemoryPlan(
        model=model,
        weights=weights,
        cache=blocks * block,
        adapters=adapters,
        workspace=workspace,
        loading=full if options.quantization else 0,
        cache_tokens=blocks * options.block_tokens,
        token_bytes=shape.token_bytes(number),
        adapter_bytes=shape.adapter_parameters(COMMON_RANK) * number,
        context_tokens=min(context, blocks * options.block_tokens),
        available=available,
        sequences=options.sequences,
        weights_int8=0 if options.quantization else quantized,
        slots=options.adapter_slots if options.adapters else 0,
    )


def weight_bytes(shape: NetworkShape, number_bytes: int, quantization: str) -> int:
    """Returns the bytes of the weights."""
    if not quantization:
        return shape.parameters * number_bytes
    rest = shape.parameters - shape.linear - shape.embedding
    embedding = shape.embedding * number_bytes
    if shape.shares_embedding:
        embedding = shape.embedding + shape.vocabulary * _SCALE_BYTES
    return shape.linear + shape.linear_rows * _SCALE_BYTES + embedding + rest * number_bytes


def adapter_bytes(shape: NetworkShape, options: PlannedOptions) -> int:
    """Returns the bytes of all slots: each has the largest rank, for the layers of any adapter."""
    rank = max((one.rank for one in options.adapters), default=0)
    known = [one.layers for one in options.adapters if one.layers is not None]
    layers = frozenset[str]().union(*known) if len(known) == len(options.adapters) else None
    numbers = options.adapter_slots * shape.adapter_parameters(rank, layers)
    return numbers * NUMBER_BYTES[options.dtype]


def _workspace(shape: NetworkShape, options: PlannedOptions, number_bytes: int) -> int:
    activations = _STEP_TOKENS * (_ACTIVATIONS * shape.hidden + 3 * shape.intermediate)
    logits = options.sequences * shape.vocabulary * 4 * _LOGITS_COPIES
    process = _PROCESS_BYTES["cpu" if options.on_cpu else "cuda"]
    return activations * number_bytes + logits + process


def _mib(size: float) -> str:
    return f"{size / MIB:,.0f} MiB"
