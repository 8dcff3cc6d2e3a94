"""One version of a model: its engine, options, limits, latency target and price."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, SkipValidation, StrictBool

from jobs.errors import NotConfigured
from jobs.models import artifact_paths
from jobs.models.adapters import Adapter, folder_problems
from jobs.models.engines import upstream_options
from jobs.models.engines.builtin_engines import spec_of
from jobs.models.engines.engine_spec import EngineSpec, Param, Task
from jobs.models.inputs import embeddings
from jobs.models.pricing import Price
from jobs.problems import fits
from jobs.states import PREPARE_POOL

_MOST_ESCAPED = 6  # bytes of one character as \uXXXX
ENVELOPE_BYTES = 65_536
"""Most bytes of an item's line beside its input: custom_id, parameters, names."""

_Name = Annotated[str, fits(lambda name: name and "@" not in name, "a text without '@'")]
_Whole0 = Annotated[int, Field(strict=True, ge=0)]
_Whole1 = Annotated[int, Field(strict=True, ge=1)]


def _pool(value: Any) -> str | tuple[str, ...]:
    """Validates the name of a pool, or a list of names."""
    names = value if isinstance(value, list | tuple) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("the name of a pool, or a list of names, is expected")
    if len(set(names)) < len(names):
        raise ValueError("names a pool twice")
    return names[0] if len(names) == 1 else tuple(names)


_ITL_MS = 100  # where the models file has none
DEFAULT_ROWS = 32
"""Most entries of a launch, likewise."""
DEFAULT_SLICE_ITEMS = 1000
"""Most items of a slice, likewise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one model, kept by its workers and the scheduler.

    Where an entry leaves out `max_batch`, it and `max_tokens` are found by measurement if the
    engine's spec says so (`EngineSpec.measured`); `most_rows` is what holds until then.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    max_batch: _Whole1 | None = None  #: entries of a launch
    max_tokens: _Whole0 = 0  #: size units of a launch, padding included; 0: no bound
    in_flight: _Whole1 = 1  #: concurrent launches on a device
    window_ms: _Whole0 = 20  #: longest wait of an item for others that fill its launch
    slice_items: _Whole1 = (
        DEFAULT_SLICE_ITEMS  #: most items of a slice; workers cut those that take over 2 s
    )
    max_item_bytes: _Whole1 = 262_144  #: longest input, as JSON
    max_launch_s: _Whole1 = 60  #: a launch that takes longer hangs: its worker is ended
    max_load_s: _Whole1 = 600  #: the same for loading and warming up
    max_attempts: _Whole1 = 5  #: attempts of an item whose errors are transient
    backoff_ms: _Whole1 = 500  #: longest wait before the second attempt; doubled for each one more
    max_backoff_ms: _Whole1 = 60_000  #: longest wait before any attempt

    @property
    def most_rows(self) -> int:
        """Most entries of a launch: as declared, or 32."""
        return self.max_batch or DEFAULT_ROWS


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
    pool: Annotated[str | tuple[str, ...], PlainValidator(_pool)] = "default"  #: one, or several
    #: share of MILLRACE_MEMORY_MB, MiB; 0: what the engine reports once it is loaded
    memory_mb: _Whole0 = 0
    #: who prepares its items: the worker that launches them, or those of the pool `prepare`
    prepare: Literal["worker", "pool"] = "worker"
    fetch: StrictBool = False  #: items that are https:// and s3:// addresses are fetched
    on_demand: StrictBool = False  #: loaded by the first worker that a call or item finds missing
    #: OpenAI's embeddings take token ids, which must be those of the model's own tokenizer
    accept_token_ids: StrictBool = False
    bucketing: StrictBool = (
        True  #: only inputs of similar length share a launch, where length matters
    )
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  #: of the engine
    limits: Limits = field(default_factory=Limits)
    degrade: Degrade = field(default_factory=Degrade)  #: measures before a call is rejected
    #: the one thing that may change under a version
    price: Price = field(default_factory=Price, compare=False)
    task: Task | Literal[""] = ""  #: "": that of the engine
    #: declared with it; others may come under a version
    adapters: tuple[Adapter, ...] = field(default=(), compare=False)
    artifact: str = ""  #: digest of its files in the registry; "": its options name their paths
    probe: str = field(default="", compare=False)  #: JSON, from the registry; "": none
    #: s since 1970 at which it was registered, or its models file was written last
    created: int = field(default=0, compare=False)

    @property
    def served_by(self) -> "Model":
        """Version whose workers, lanes and limits of calls it has: itself, or an adapter's base."""
        return self

    @property
    def context_tokens(self) -> int:
        """Most tokens of a sequence: of an input, with the output where it generates; 0: it has no
        such bound, or files that aren't here say it."""
        try:
            return self.spec.context(self.options)
        except (NotConfigured, ValueError):  # as while its folder is replaced
            return 0

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the pools whose workers serve it."""
        return (self.pool,) if isinstance(self.pool, str) else self.pool

    @property
    def adapter_name(self) -> str:
        """Name of the adapter that it is; "": it is none."""
        return ""

    @property
    def stages(self) -> "tuple[Model, ...]":
        """Models that its items wait for, one after the other: its preparation, if workers of their
        own do that, and itself."""
        return (PreparationModel.create(self), self) if self.prepare == "pool" else (self,)

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
        return _MOST_ESCAPED * self.limits.max_item_bytes + ENVELOPE_BYTES

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
    def measures_limits(self) -> bool:
        """True where the limits of its launches are found when a worker loads it: its entry has no
        `max_batch`, and its engine may be measured."""
        return self.spec.measured and self.limits.max_batch is None

    @property
    def pads(self) -> bool:
        """True where a launch costs rows times its longest, not the sum of its rows.

        Declared, not measured: the scheduler doesn't know the device.
        """
        return self.spec.pads(self.options)

    def staged(self, snapshot: Path, files: Mapping[str, str]) -> "Model":
        """Returns this version with its files, and its adapters', in a snapshot of its artifact.

        files: SHA-256 of each, by path; options that leave one out get it from there.
        """
        kind = self.spec.options
        digests = artifact_paths.digests(self.options, kind.digests if kind else {}, files)
        options = {**self.options, **digests}
        return replace(
            self,
            options={key: artifact_paths.staged(one, snapshot) for key, one in options.items()},
            adapters=tuple(
                replace(one, path=artifact_paths.staged(one.path, snapshot))
                for one in self.adapters
            ),
        )

    def file_problems(self) -> list[str]:
        """Returns what is wrong with the files that its options name; loads none. Those of an
        artifact are verified where it is staged."""
        if self.artifact:
            return []
        problems = [problem for adapter in self.adapters for problem in folder_problems(adapter)]
        if self.spec.options is not None:
            options = self.spec.options(**self.options)
            problems = [*options.file_problems(self.effective_task), *problems]
        return [f"{self.key}: {problem}" for problem in problems]

    def size(self, value: Any, params: Mapping[str, Any]) -> int:
        """Returns a call's size, for its lane; a worker measures again."""
        return self.spec.size(value, params, self.options)

    def takes_inputs_of(self, other: "Model") -> bool:
        """Returns True if this version takes whatever another one of its name was checked for."""
        return (
            (self.spec, self.effective_task, self.params, self.fetch)
            == (other.spec, other.effective_task, other.params, other.fetch)
            and self.limits.max_item_bytes >= other.limits.max_item_bytes
            and (self.effective_task != "tensors" or self.options == other.options)
        )

    def split_inputs(self, value: Any) -> list[Any] | None:
        """Returns the inputs of a list whose inputs run one by one; None: it is one input."""
        return embeddings.split_inputs(value) if self.effective_task == "embedding" else None


def base_of(model: Model) -> str:
    """Returns what adapters of a version are bound to: its files, which versions may share, or the
    version itself where it has no artifact."""
    return model.artifact or model.key


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedModel(Model):
    """One adapter of a version, named `model:adapter`: jobs, usage and prices go by this name, and
    workers of its base serve it."""

    base: Model
    adapter: Adapter = field(compare=False)

    @classmethod
    def create(cls, base: Model, adapter: Adapter) -> "AdaptedModel":
        """Returns the model that an adapter makes of its base."""
        same = {one.name: getattr(base, one.name) for one in fields(Model)}
        same |= {"name": f"{base.name}:{adapter.name}", "adapters": (), "prepare": "worker"}
        same["price"] = adapter.price or base.price
        return cls(**same, base=base, adapter=adapter)

    @property
    def served_by(self) -> Model:
        """Implements `Model.served_by`."""
        return self.base

    @property
    def adapter_name(self) -> str:
        """Implements `Model.adapter_name`."""
        return self.adapter.name


PREPARATION = "~prepare"
"""Ends the version under which slices wait that are still to be prepared."""

_AT_ONCE = 16  # inputs: few enough that a slice is shared out among workers
_WINDOW_MS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationModel(Model):
    """Preparation of another model's items, as a model of its own: its slices are claimed, leased
    and counted like any others, by workers of the pool `prepare`. Its version is that of the other
    with `~prepare` behind it, and nobody may ask for it."""

    base: Model

    @classmethod
    def create(cls, base: Model) -> "PreparationModel":
        """Returns the preparation of a model."""
        same = {one.name: getattr(base, one.name) for one in fields(Model)}
        same |= {
            "version": base.version + PREPARATION,
            "pool": PREPARE_POOL,
            "prepare": "worker",
            "limits": replace(
                base.limits, max_batch=_AT_ONCE, max_tokens=0, in_flight=1, window_ms=_WINDOW_MS
            ),
            "degrade": Degrade(),
            "price": Price(),
            "adapters": (),
            "probe": "",
            "memory_mb": 0,
            "on_demand": False,
        }
        return cls(**same, base=base)

    @property
    def size_buckets(self) -> tuple[int, ...]:
        """Implements `Model.size_buckets`: how long an input is isn't known yet."""
        return ()

    @property
    def pads(self) -> bool:
        """Implements `Model.pads`."""
        return False


def without_stage(version: str) -> str:
    """Returns the version that clients know, of one under which slices wait."""
    return version.removesuffix(PREPARATION)
