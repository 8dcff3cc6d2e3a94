"""The models that are served: what each accepts, its limits, its latency target.

Free of torch: the api checks inputs and sizes calls by the same entry that tells a worker which
engine to load.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from jobs import degrade, embeddings, own_models, prices, tensors, upstreams
from jobs.degrade import Degrade
from jobs.errors import UnknownModel
from jobs.kinds import ANYBODYS, TOKEN_BUCKETS, Kind, Options, Param, Task
from jobs.prices import Price
from jobs.settings import SettingsError
from jobs.sizes import (
    MIN_TOKENS,
    POSITIONS,
    WORDS,
    characters,
    guessed_tokens,
    minilm_tokens,
    written_characters,
)

_MOST_ESCAPED = 6  # bytes of one character as \uXXXX
_ENVELOPE_BYTES = 65_536  # custom_id, parameters, names


def _whole(what: str, least: int, most: int) -> Param:
    return Param(int, f"a whole number of {what}, {least} to {most}", range(least, most + 1))


def _embedding(most_dimensions: int) -> Kind:
    """Of what cuts texts by MiniLM's tokenizer, whatever comes after."""
    params = {
        "normalize": Param(bool, "true or false"),
        "truncate": _whole("tokens", MIN_TOKENS, POSITIONS),
        "dimensions": _whole("dimensions", 1, most_dimensions),
    }
    return Kind(True, "tokens", params, minilm_tokens, TOKEN_BUCKETS, "embedding", vocabulary=WORDS)


_CHAT_UPSTREAM = Kind(False, "tokens", {}, guessed_tokens, task="chat", limits=upstreams.limits_of)
_EMBEDDING_UPSTREAM = Kind(
    False,
    "tokens",
    {"dimensions": Param(int, "a whole number, 1 or more", range(1, 1_000_000))},
    guessed_tokens,
    task="embedding",
    limits=upstreams.limits_of,
    vocabulary=1 << 31,  # its own, which is not known here
)
_TENSORS = Kind(False, "rows", {}, tensors.rows, task="tensors")
_OPENAI = {"chat": _CHAT_UPSTREAM, "embedding": _EMBEDDING_UPSTREAM}

KINDS: Mapping[str, Kind] = {
    "minilm": _embedding(384),
    "encoder": _embedding(8192),  # an engine refuses more than it has
    "function": Kind(True, "characters", {}, characters, task="text"),
    "echo": Kind(False, "characters", {}, characters),
    "http": Kind(False, "characters", {}, written_characters, limits=upstreams.limits_of),
    "openai": replace(_CHAT_UPSTREAM, by_task=_OPENAI),
    "python": own_models.PYTHON,
    "torch": own_models.TORCH,
    "huggingface": own_models.HUGGINGFACE,
    "tensors": replace(_TENSORS, by_task={"tensors": _TENSORS}),
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


@cache
def _kind_of(engine: str, task: str) -> Kind:
    """Kept: each item that comes in or is prepared asks for it several times."""
    return KINDS[engine].doing(task)


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
        return _kind_of(self.engine, self.task)

    @property
    def params(self) -> Mapping[str, Param] | None:
        """The parameters that it takes; None: any, which it passes on."""
        passes = self.engine == "http" and upstreams.passes_params(self.options)
        return None if passes else self.kind.params

    @property
    def buckets(self) -> tuple[int, ...]:
        """The length buckets in force: up to what inputs are cut at, none without bucketing."""
        if not self.bucketing or not self.kind.buckets:
            return ()
        longest = self.kind.longest(self.options)
        below = tuple(top for top in self.kind.buckets if top < longest)
        return self.kind.buckets[: len(below) + 1]

    @property
    def pads(self) -> bool:
        """Whether a launch costs rows times its longest, or the sum of its rows. By what is
        declared: who schedules doesn't know the device."""
        return self.kind.pads or bool(self.options.get("layout") == "padded")

    def lacks(self) -> list[str]:
        """What is wrong with the files that its options name, as far as it can be told without
        loading them."""
        options = self.kind.options
        return [f"{self.key}: {no}" for no in options.lacks(self.options)] if options else []

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


def _tensor(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


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
        Model(
            "simple",
            "1",
            "tensors",
            target_ms=50,
            options={
                "function": "workers.engines.samples:sum_and_difference",
                "inputs": [_tensor(f"INPUT{n}", "INT32", -1, 16) for n in range(2)],
                "outputs": [_tensor(f"OUTPUT{n}", "INT32", -1, 16) for n in range(2)],
            },
            limits=Limits(max_batch=64, max_tokens=256, window_ms=5),
        ),
        Model(
            "image-classifier",
            "1",
            "tensors",
            target_ms=250,
            options={
                "module": "workers.engines.classifier:RandomClassifier",
                "inputs": [_tensor("image", "UINT8", -1, 64, 64, 3)],
                "outputs": [_tensor("probabilities", "FP32", -1, 10)],
            },
            limits=Limits(max_batch=32, max_tokens=32, slice_items=256, max_item_bytes=600_000),
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
        if (model := _model(entry, path.parent, f"{path}: [[model]] number {n}", problems))
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


def _model(entry: Mapping[str, Any], folder: Path, where: str, problems: list[str]) -> Model | None:
    """folder: where paths among its options begin."""
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
    kind = _kind(entry, where, problems)
    options = _options(entry.get("options", {}), kind, folder, where, problems)
    if kind is _TENSORS:
        problems += [f"{where}: {problem}" for problem in tensors.problems_of(options)]
    given = kind.limits(entry, where, problems) if kind else entry.get("limits", {})
    limits = _limits(given, where, problems)
    degraded = degrade.read(entry.get("degrade", {}), kind, where, problems)
    price = prices.read(entry.get("price", {}), where, problems)
    if len(problems) > before:
        return None
    read = {"options": options, "limits": limits, "degrade": degraded, "price": price}
    return Model(**{**entry, **read})


def _kind(entry: Mapping[str, Any], where: str, problems: list[str]) -> Kind | None:
    """Of its engine and task, where both are known."""
    kind = KINDS.get(str(entry.get("engine")))
    known = tuple(kind.by_task) if kind and kind.by_task else ANYBODYS
    task = entry.get("task", kind.task if kind else "any")
    if task in known:
        return kind and kind.doing(task)
    no = f"no task {task!r}" if "task" in entry else f"engine {entry.get('engine')!r} needs a task"
    problems.append(f"{where}: {no}; there are: {', '.join(known)}")
    return None


def _options(
    entry: Any, kind: Kind | None, folder: Path, where: str, problems: list[str]
) -> Mapping[str, Any]:
    """The same, with paths that go from the folder."""
    if not isinstance(entry, dict):
        problems.append(f"{where}: options must be a table")
        return {}
    known = kind.options if kind else None
    if known is None:
        return entry
    wrong = [no for key, value in entry.items() if (no := _wrong_option(key, value, known))]
    problems += [f"{where}: {no}" for no in wrong or known.wrong(entry)]
    if wrong:
        return entry
    return {
        key: str(folder.absolute() / value) if key in known.paths else value
        for key, value in entry.items()
    }


def _wrong_option(key: str, value: Any, options: Options) -> str | None:
    wanted = options.known.get(key)
    if wanted is None:
        return f"unknown option {key!r}; there are: {', '.join(options.known)}"
    return None if wanted.takes(value) else f"options.{key} must be {wanted.wanted}"


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
