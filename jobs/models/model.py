"""One version of a model: its engine, options, limits, latency target and price."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SkipValidation, StrictBool

from jobs.models.engines import upstream_options
from jobs.models.engines.builtin_engines import spec_of
from jobs.models.engines.engine_spec import EngineSpec, Param, Task
from jobs.models.inputs import embeddings
from jobs.models.pricing import Price
from jobs.problems import fits

_MOST_ESCAPED = 6  # bytes of one character as \uXXXX
_ENVELOPE_BYTES = 65_536  # custom_id, parameters, names

_Name = Annotated[str, fits(lambda name: name and "@" not in name, "a text without '@'")]
_Whole0 = Annotated[int, Field(strict=True, ge=0)]
_Whole1 = Annotated[int, Field(strict=True, ge=1)]


_ITL_MS = 100  # where the models file has none


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one model, kept by its workers and the scheduler."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    max_batch: _Whole1 = 32  #: entries of a launch
    max_tokens: _Whole0 = 0  #: size units of a launch, padding included; 0: no bound
    in_flight: _Whole1 = 1  #: concurrent launches on a device
    window_ms: _Whole0 = 20  #: longest wait of an item for others that fill its launch
    slice_items: _Whole1 = 1000  #: most items of a slice; workers cut those that take over 2 s
    max_item_bytes: _Whole1 = 262_144  #: longest input, as JSON
    max_launch_s: _Whole1 = 60  #: a launch that takes longer hangs: its worker is ended
    max_load_s: _Whole1 = 600  #: the same for loading and warming up
    max_attempts: _Whole1 = 5  #: attempts of an item whose errors are transient
    backoff_ms: _Whole1 = 500  #: longest wait before the second attempt; doubled for each one more
    max_backoff_ms: _Whole1 = 60_000  #: longest wait before any attempt


@dataclass(frozen=True, slots=True)
class Degrade:
    """Measures that may be taken with a call under load, before it is rejected."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    shed: StrictBool = False  #: rejects calls of lower classes earlier
    #: tokens that a text is cut to; 0: it isn't cut; checked as the engine's parameter
    truncate: Annotated[int, SkipValidation] = 0
    fallback: str = ""  #: version (name@version) that answers in place of this one; "": none


@dataclass(frozen=True, slots=True)
class Model:
    """One version of one model: an entry of the models file."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: _Name
    version: _Name
    engine: _Name
    target_ms: _Whole1 = 250  #: latency target of calls
    target_ttft_ms: _Whole1 = 2000  #: the same until the first token, of models that generate
    #: mean gap between tokens to keep, up to which items fill the steps of models that generate;
    #: 0: 100, and items make the steps of calls hardly longer
    target_itl_ms: _Whole0 = 0
    pool: Annotated[str, Field(min_length=1)] = "default"
    #: share of MILLRACE_MEMORY_MB, MiB; 0: what the engine reports once it is loaded
    memory_mb: _Whole0 = 0
    on_demand: StrictBool = False  #: loaded by the first worker that a call or item finds missing
    bucketing: StrictBool = (
        True  #: only inputs of similar length share a launch, where length matters
    )
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  #: of the engine
    limits: Limits = field(default_factory=Limits)
    degrade: Degrade = field(default_factory=Degrade)  #: measures before a call is rejected
    #: the one thing that may change under a version
    price: Price = field(default_factory=Price, compare=False)
    task: Task | Literal[""] = ""  #: "": that of the engine

    @property
    def effective_task(self) -> Task:
        """Task of this version: its own, or that of its engine."""
        return self.task or self.spec.task

    @property
    def key(self) -> str:
        """Identity of this version: name@version."""
        return f"{self.name}@{self.version}"

    @property
    def answer_target_ms(self) -> int:
        """Time (ms) in which a call is to be answered, or to have its first token."""
        return self.target_ttft_ms if self.spec.generates else self.target_ms

    @property
    def itl_target_ms(self) -> int:
        """Mean gap between tokens to keep (ms)."""
        return self.target_itl_ms or _ITL_MS

    @property
    def margin_ms(self) -> float:
        """Latency budget (ms) reserved for HTTP, Redis and a busy machine."""
        return max(5.0, self.answer_target_ms / 40)

    @property
    def max_line_bytes(self) -> int:
        """Length that no item's line exceeds, however its JSON is escaped."""
        return _MOST_ESCAPED * self.limits.max_item_bytes + _ENVELOPE_BYTES

    @property
    def spec(self) -> EngineSpec:
        """Properties that its engine and task decide."""
        spec = spec_of(self.engine, self.task)
        return spec.streaming if spec.streaming and self.options.get("stream") else spec

    @property
    def params(self) -> Mapping[str, Param] | None:
        """Parameters that it takes; None: any, which it passes on."""
        passes = self.engine == "http" and upstream_options.passes_params(self.options)
        return None if passes else self.spec.params

    @property
    def buckets(self) -> tuple[int, ...]:
        """Length buckets of its lanes; () for one lane: without bucketing, and where a launch has
        no padding that they could save."""
        return self.size_buckets if self.bucketing and self.pads else ()

    @property
    def size_buckets(self) -> tuple[int, ...]:
        """Length buckets up to the length that inputs are cut to, for predictions; () where length
        doesn't matter."""
        if not self.spec.buckets:
            return ()
        longest = self.spec.longest(self.options)
        below = tuple(top for top in self.spec.buckets if top < longest)
        return self.spec.buckets[: len(below) + 1]

    @property
    def pads(self) -> bool:
        """True where a launch costs rows times its longest, not the sum of its rows.

        Declared, not measured: the scheduler doesn't know the device.
        """
        return self.spec.pads or bool(self.options.get("layout") == "padded")

    def file_problems(self) -> list[str]:
        """Returns what is wrong with the files that its options name; loads none."""
        if self.spec.options is None:
            return []
        problems = self.spec.options(**self.options).file_problems(self.effective_task)
        return [f"{self.key}: {problem}" for problem in problems]

    def size(self, value: Any, params: Mapping[str, Any]) -> int:
        """Returns a call's size, for its lane; a worker measures again."""
        return self.spec.size(value, params, self.options)

    def split_inputs(self, value: Any) -> list[Any] | None:
        """Returns the inputs of a list whose inputs run one by one; None: it is one input."""
        return embeddings.split_inputs(value) if self.effective_task == "embedding" else None
