"""One version of a model: its engine, options, limits, latency target and price."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.models.degradation import Degrade
from jobs.models.engines import upstream_options
from jobs.models.engines.builtin_engines import spec_of
from jobs.models.engines.engine_spec import EngineSpec, Param, Task
from jobs.models.inputs import embeddings
from jobs.models.pricing import Price

_MOST_ESCAPED = 6  # bytes of one character as \uXXXX


_ENVELOPE_BYTES = 65_536  # custom_id, parameters, names


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one model; a worker and the scheduler keep them.

    max_batch: entries a launch; max_tokens: size units a launch, padding included (0: no bound);
    in_flight: launches at a time on a device; window_ms: how long an item waits for others
    to fill its launch; slice_items: items of one slice (one to two seconds of device time);
    max_item_bytes: the longest input, as JSON; max_launch_s, max_load_s: a launch, or loading and
    warming up, that takes longer hangs, and its worker is ended; max_attempts: tries of an item
    that fails for now; backoff_ms, max_backoff_ms: the longest wait before the second try, doubled
    for each further one, and ever.
    """

    max_batch: int = 32
    max_tokens: int = 0
    in_flight: int = 1
    window_ms: int = 20
    slice_items: int = 1000
    max_item_bytes: int = 262_144
    max_launch_s: int = 60
    max_load_s: int = 600
    max_attempts: int = 5
    backoff_ms: int = 500
    max_backoff_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Model:
    """One version of one model: an entry of the models file.

    bucketing: whether only inputs of about one length share a launch, where length matters.
    degrade: what may be done with a call before it is refused.
    memory_mb: what it takes of a worker's MILLRACE_MEMORY_MB; 0: what its engine says once it is
    loaded. price: what its use costs; the one thing that may change under a version. task: what it
    does; empty: what its kind does.
    """

    name: str
    version: str
    engine: str
    target_ms: int = 250
    pool: str = "default"
    memory_mb: int = 0
    bucketing: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    limits: Limits = field(default_factory=Limits)
    degrade: Degrade = field(default_factory=Degrade)
    price: Price = field(default_factory=Price, compare=False)
    task: Task | Literal[""] = ""

    @property
    def effective_task(self) -> Task:
        return self.task or self.spec.task

    @property
    def key(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def margin_ms(self) -> float:
        """Of the target, for what no launch accounts for: HTTP, Redis, a busy machine."""
        return max(5.0, self.target_ms / 40)

    @property
    def max_line_bytes(self) -> int:
        """More than its longest item has as JSON, however it is escaped."""
        return _MOST_ESCAPED * self.limits.max_item_bytes + _ENVELOPE_BYTES

    @property
    def spec(self) -> EngineSpec:
        return spec_of(self.engine, self.task)

    @property
    def params(self) -> Mapping[str, Param] | None:
        """The parameters that it takes; None: any, which it passes on."""
        passes = self.engine == "http" and upstream_options.passes_params(self.options)
        return None if passes else self.spec.params

    @property
    def buckets(self) -> tuple[int, ...]:
        """The length buckets in force: up to what inputs are cut at, none without bucketing."""
        if not self.bucketing or not self.spec.buckets:
            return ()
        longest = self.spec.longest(self.options)
        below = tuple(top for top in self.spec.buckets if top < longest)
        return self.spec.buckets[: len(below) + 1]

    @property
    def pads(self) -> bool:
        """Whether a launch costs rows times its longest, or the sum of its rows. By what is
        declared: who schedules doesn't know the device."""
        return self.spec.pads or bool(self.options.get("layout") == "padded")

    def file_problems(self) -> list[str]:
        """What is wrong with the files that its options name, as far as it can be told without
        loading them."""
        options = self.spec.options
        return (
            [f"{self.key}: {no}" for no in options.file_problems(self.options)] if options else []
        )

    def size(self, value: Any, params: Mapping[str, Any]) -> int:
        """A call's size, for its lane; a worker measures again."""
        return self.spec.size(value, params, self.options)

    def split_inputs(self, value: Any) -> list[Any] | None:
        """The inputs that a list stands for, where each is run by itself; None: it is one."""
        return embeddings.split_inputs(value) if self.effective_task == "embedding" else None
