"""The models that are served: what each accepts, its limits, its latency target.

Free of torch: the api checks inputs and sizes calls by the same entry that tells a worker which
engine to load.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from jobs import degrade, embeddings, prices
from jobs.degrade import Degrade
from jobs.errors import UnknownModel
from jobs.prices import Price
from jobs.settings import SettingsError
from jobs.sizes import MAX_TOKENS, MIN_TOKENS, POSITIONS, WORDS, characters, minilm_tokens

Task = Literal[
    "any", "text", "embedding", "chat", "classification", "tokens", "reranking", "tensors"
]
"""What a model does, by which other doors let it in: any JSON to any JSON; a text to anything; a
text to its vector; a conversation to what is said next; a text to labels; a text's tokens to
labels; a query and texts to scores; named tensors to named tensors."""
TASKS: tuple[Task, ...] = get_args(Task)

TOKEN_BUCKETS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


_MOST_ESCAPED = 6  # bytes of one character as \uXXXX
_ENVELOPE_BYTES = 65_536  # custom_id, parameters, names


@dataclass(frozen=True, slots=True)
class Param:
    """What a parameter may be: of this JSON type, and in this range where it is a number."""

    type: type
    wanted: str
    span: range | None = None

    def takes(self, value: Any) -> bool:
        # Not isinstance: true and false are no numbers.
        return type(value) is self.type and (self.span is None or value in self.span)


@dataclass(frozen=True, slots=True)
class Kind:
    """What every model of one engine has in common.

    unit: what sizes count. params: the parameters it takes; all of them change the computation.
    size: of an input, by its params and the model's options. buckets: upper ends of the length
    buckets; empty where length doesn't matter. task: what they do, unless their entry says else.
    vocabulary: token ids below it may come in place of a text; 0: none may.
    """

    text_only: bool
    unit: str
    params: Mapping[str, Param]
    size: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], int]
    buckets: tuple[int, ...] = ()
    task: Task = "any"
    vocabulary: int = 0


def _whole(what: str, least: int, most: int) -> Param:
    return Param(int, f"a whole number of {what}, {least} to {most}", range(least, most + 1))


def _embedding(most_dimensions: int) -> Kind:
    """Of what cuts texts by MiniLM's tokenizer, whatever comes after."""
    params = {
        "normalize": Param(bool, "true or false"),
        "truncate": _whole("tokens", MIN_TOKENS, POSITIONS),
        "dimensions": _whole("dimensions", 1, most_dimensions),
    }
    return Kind(True, "tokens", params, minilm_tokens, TOKEN_BUCKETS, "embedding", WORDS)


KINDS: Mapping[str, Kind] = {
    "minilm": _embedding(384),
    "encoder": _embedding(8192),  # an engine refuses more than it has
    "function": Kind(True, "characters", {}, characters, task="text"),
    "echo": Kind(False, "characters", {}, characters),
}


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
    def does(self) -> Task:
        return self.task or self.kind.task

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
    def kind(self) -> Kind:
        return KINDS[self.engine]

    @property
    def buckets(self) -> tuple[int, ...]:
        """The length buckets in force: up to what inputs are cut at, none without bucketing."""
        if not self.bucketing or not self.kind.buckets:
            return ()
        longest = self.options.get("max_tokens", MAX_TOKENS)
        below = tuple(top for top in self.kind.buckets if top < longest)
        return self.kind.buckets[: len(below) + 1]

    @property
    def pads(self) -> bool:
        """Whether a launch costs rows times its longest, or the sum of its rows. By what is
        declared: who schedules doesn't know the device."""
        return bool(self.options.get("layout") == "padded")

    def size(self, value: Any, params: Mapping[str, Any]) -> int:
        """A call's size, for its lane; a worker measures again."""
        return self.kind.size(value, params, self.options)

    def inputs_of(self, value: Any) -> list[Any] | None:
        """The inputs that a list stands for, where each is run by itself; None: it is one."""
        return embeddings.inputs_of(value) if self.does == "embedding" else None


class Registry:
    """All models, by `name@version`; a bare name means the version declared last."""

    def __init__(self, models: list[Model]) -> None:
        self._by_key = {model.key: model for model in models}
        self._versions: dict[str, list[Model]] = {}  # by name: the one declared last goes first
        for model in models:
            self._versions.setdefault(model.name, []).insert(0, model)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._by_key.values())

    def get(self, key: str) -> Model | None:
        """The one that has this `name@version`."""
        return self._by_key.get(key)

    def resolve(self, asked: str) -> Model:
        """The model for "name" or "name@version"; raises UnknownModel."""
        return self.versions(asked)[0]

    def versions(self, asked: str) -> list[Model]:
        """All that "name" may mean, the one declared last first; "name@version" means one. Raises
        UnknownModel."""
        if model := self._by_key.get(asked):
            return [model]
        if asked not in self._versions:
            names = ", ".join(sorted(self._by_key))
            raise UnknownModel(f"no model {asked!r} is served here; there are: {names}")
        return self._versions[asked]

    def unit(self, name: str, version: str) -> str:
        """What the sizes of a stored job count, whether or not its model is still served."""
        model = self._by_key.get(f"{name}@{version}")
        return model.kind.unit if model else "units"

    @cached_property
    def max_line_bytes(self) -> int:
        """More than the longest item of any model has as JSON, however it is escaped."""
        return max(model.max_line_bytes for model in self)

    def of_pool(self, pool: str) -> list[Model]:
        return [model for model in self if model.pool == pool]

    def pools(self) -> list[str]:
        return sorted({model.pool for model in self})


SAMPLES = Registry(
    [
        Model(
            "minilm",
            "1",
            "minilm",
            target_ms=250,
            limits=Limits(max_batch=64, max_tokens=512, in_flight=2, slice_items=256),
        ),
        Model("echo", "1", "echo", target_ms=50, limits=Limits(max_batch=500, window_ms=5)),
        Model(
            "batchstring",
            "1",
            "function",
            target_ms=300,  # a call that just missed a launch waits for it, and for its own
            options={"function": "workers.engines.samples:batchstring", "samples": ["a string"]},
            limits=Limits(max_batch=100),
        ),
    ]
)


def load(path: Path | None) -> Registry:
    """The models file at `path`, or the samples. Raises SettingsError with all its problems."""
    return SAMPLES if path is None else read(path)


def read(path: Path) -> Registry:
    """The models file as it is now. Raises SettingsError with all its problems."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError([f"models file {path} can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SettingsError([f"models file {path} is not valid TOML: {error}"]) from error
    problems: list[str] = []
    entries = document.get("model", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError([f"{path}: a model is declared under [[model]], in double brackets"])
    models = [
        model
        for n, entry in enumerate(entries, start=1)
        if (model := _model(entry, f"{path}: [[model]] number {n}", problems))
    ]
    if not models and not problems:
        problems.append(f"{path} declares no [[model]]")
    seen: set[str] = set()
    for model in models:
        if model.key in seen:
            problems.append(f"{path} declares {model.key} twice")
        seen.add(model.key)
    problems += [f"{path}: {problem}" for problem in degrade.problems_of(models)]
    if problems:
        raise SettingsError(problems)
    return Registry(models)


def _model(entry: Mapping[str, Any], where: str, problems: list[str]) -> Model | None:
    before = len(problems)
    known = {f.name for f in fields(Model)}
    problems += [f"{where}: unknown key {key!r}" for key in entry if key not in known]
    for key in ("name", "version", "engine"):
        value = entry.get(key)
        if not isinstance(value, str) or not value or "@" in value:
            problems.append(f"{where}: {key} must be a string without '@'")
    if entry.get("engine") not in KINDS and isinstance(entry.get("engine"), str):
        names = ", ".join(KINDS)
        problems.append(f"{where}: no engine {entry['engine']!r}; there are: {names}")
    target_ms = entry.get("target_ms", 1)
    if not isinstance(target_ms, int) or isinstance(target_ms, bool) or target_ms < 1:
        problems.append(f"{where}: target_ms must be a whole number, 1 or more")
    if not isinstance(pool := entry.get("pool", "default"), str) or not pool:
        problems.append(f"{where}: pool must be a string")
    memory_mb = entry.get("memory_mb", 0)
    if not isinstance(memory_mb, int) or isinstance(memory_mb, bool) or memory_mb < 0:
        problems.append(f"{where}: memory_mb must be a whole number, 0 or more")
    if not isinstance(entry.get("bucketing", True), bool):
        problems.append(f"{where}: bucketing must be true or false")
    if (task := entry.get("task", "any")) not in TASKS:
        problems.append(f"{where}: no task {task!r}; there are: {', '.join(TASKS)}")
    if not isinstance(entry.get("options", {}), dict):
        problems.append(f"{where}: options must be a table")
    limits = _limits(entry.get("limits", {}), where, problems)
    kind = KINDS.get(str(entry.get("engine")))
    degraded = degrade.read(entry.get("degrade", {}), kind, where, problems)
    price = prices.read(entry.get("price", {}), where, problems)
    if len(problems) > before:
        return None
    return Model(**{**entry, "limits": limits, "degrade": degraded, "price": price})


def _limits(entry: Any, where: str, problems: list[str]) -> Limits:
    if not isinstance(entry, dict):
        problems.append(f"{where}: limits must be a table")
        return Limits()
    known = {f.name for f in fields(Limits)}
    for key, value in entry.items():
        if key not in known:
            problems.append(f"{where}: unknown limit {key!r}; there are: {', '.join(known)}")
        elif not isinstance(value, int) or isinstance(value, bool) or value < 0:
            problems.append(f"{where}: limit {key} must be a whole number, 0 or more")
        elif value == 0 and key not in ("max_tokens", "window_ms"):
            problems.append(f"{where}: limit {key} must be 1 or more")
    return Limits() if problems else Limits(**entry)
