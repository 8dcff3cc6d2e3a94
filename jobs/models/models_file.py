"""Reads the models file (TOML) and reports all its problems at once."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jobs.models.adapters import SLOTS, Adapter, adapted_key
from jobs.models.adapters import problems_of as adapter_problems
from jobs.models.builtin_models import SAMPLES, written_s
from jobs.models.engines.builtin_engines import ENGINES
from jobs.models.engines.engine_spec import GENERAL_TASKS, EngineSpec, EntryContext
from jobs.models.model import PREPARATION, Model
from jobs.models.registry import Registry
from jobs.problems import described
from jobs.settings import SettingsError
from jobs.states import API_POOL, PREPARE_POOL

_adapter = cache(TypeAdapter)
_NO_ENTRY = {
    **dict.fromkeys(("artifact", "probe"), "the registry alone sets it"),
    "created": "the time of the models file says it",
}  # fields of models that no entry has


def load(path: Path | None) -> Registry:
    """Returns the models of the file, or the samples without one. Raises SettingsError."""
    return SAMPLES if path is None else read(path)


def read(path: Path) -> Registry:
    """Reads the models file as it is now. Raises SettingsError with all its problems."""
    entries, created = read_entries(path), written_s(path)
    problems: list[str] = []
    models: list[Model] = []
    for n, entry in enumerate(entries, start=1):
        try:
            model = parse_entry(entry, path.parent.absolute())
            models.append(replace(model, created=created))
        except SettingsError as error:
            problems += [f"{path}: [[model]] number {n}: {problem}" for problem in error.problems]
    keys = Counter(
        key
        for model in models
        for key in (
            model.key,
            *{adapted_key(model.key, one.name) for one in model.adapters},
        )
    )
    problems += [f"{path} declares {key} twice" for key, count in keys.items() if count > 1]
    problems += [f"{path}: {problem}" for problem in problems_of(models).values()]
    if problems:
        raise SettingsError(problems)
    return Registry(models)


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Returns the entries of a models file, unchecked. Raises SettingsError.

    `model = []` declares none, where all models are those of the registry.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError([f"models file {path} can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SettingsError([f"models file {path} is not valid TOML: {error}"]) from error
    entries = content.get("model")
    if entries is None:
        raise SettingsError([f"{path} declares no [[model]]"])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError([f"{path}: a model is declared under [[model]], in double brackets"])
    return entries


def read_table(kind: Any, table: Any, path: str = "", context: EntryContext | None = None) -> Any:
    """Reads a table of the file as a dataclass or a pydantic model.

    path: dotted name of the table. Raises SettingsError with all its problems.
    """
    try:
        return _adapter(kind).validate_python(table, context=context)
    except ValidationError as error:
        raise SettingsError(described(error, kind, path)) from None


def parse_entry(entry: Mapping[str, Any], folder: Path) -> Model:
    """Returns the model of one entry. folder: relative paths among its options begin there.

    Raises SettingsError with all its problems.
    """
    problems = [f"{name}: {why}" for name, why in _NO_ENTRY.items() if name in entry]
    spec = _spec(entry, problems)
    table = dict(entry)
    limits = entry.get("limits", {})
    if spec is None:
        table.pop("task", None)
    elif spec.options and isinstance(limits, dict):
        context = EntryContext(folder, spec.task, limits)
        try:
            options = read_table(spec.options, entry.get("options", {}), "options", context)
        except SettingsError as error:
            problems += error.problems
        else:
            table["options"] = options.model_dump(exclude_unset=True)
            table["limits"] = options.limits(spec.task) | limits
    table["adapters"] = _adapters(entry, spec, folder, problems)
    try:
        model: Model = read_table(Model, table)
        problems += _truncate_problems(model, spec)
        problems += _preparation_problems(model, spec)
    except SettingsError as error:
        problems += error.problems
    if problems:
        raise SettingsError(list(dict.fromkeys(problems)))
    return model


def _spec(entry: Mapping[str, Any], problems: list[str]) -> EngineSpec | None:
    """Returns the spec of the entry's engine and task, where both are known."""
    engine = entry.get("engine")
    spec = ENGINES.get(str(engine))
    if spec is None and isinstance(engine, str):
        problems.append(f"no engine {engine!r}; there are: {', '.join(ENGINES)}")
    known = tuple(spec.by_task) if spec and spec.by_task else GENERAL_TASKS
    task = entry.get("task", spec.task if spec else "any")
    if task in known:
        return spec and spec.for_task(task)
    no = f"no task {task!r}" if "task" in entry else f"engine {engine!r} needs a task"
    problems.append(f"{no}; there are: {', '.join(known)}")
    return None


def _adapters(
    entry: Mapping[str, Any], spec: EngineSpec | None, folder: Path, problems: list[str]
) -> tuple[Adapter, ...]:
    """Returns the adapters of an entry, as far as they can be read."""
    declared = entry.get("adapters", [])
    if not isinstance(declared, list):
        problems.append("adapters are declared under [[model.adapters]], in double brackets")
        return ()
    if declared and spec and not spec.adapters:
        problems.append(f"adapters: the engine {entry['engine']!r} takes none")
        return ()
    context = EntryContext(folder, spec.task if spec else "any", {})
    read = list[Adapter]()
    for n, table in enumerate(declared, start=1):
        try:
            read.append(read_table(Adapter, table, f"adapters number {n}", context))
        except SettingsError as error:
            problems += error.problems
    options = entry.get("options", {})
    slots = options.get("adapter_slots", SLOTS) if isinstance(options, dict) else SLOTS
    if spec and type(slots) is int:
        has_files = spec.adapters == "files"
        problems += adapter_problems(read, has_files=has_files, slots=slots)
    return tuple(read)


def _truncate_problems(model: Model, spec: EngineSpec | None) -> Iterator[str]:
    value = model.degrade.truncate
    if spec is None or (value == 0 and value is not False):
        return
    param = spec.params.get("truncate")
    if param is None:
        yield "degrade.truncate: this engine takes no parameter 'truncate'"
    elif not param.accepts(value):
        yield f"degrade.truncate must be {param.expected}"


def _preparation_problems(model: Model, spec: EngineSpec | None) -> Iterator[str]:
    if model.version.endswith(PREPARATION):
        yield f"version: {PREPARATION} at its end names the preparation of a version"
    if PREPARE_POOL in model.pools:
        yield f"pool: {PREPARE_POOL!r} is that of the workers that prepare; take another name"
    if API_POOL in model.pools:
        yield f"pool: {API_POOL!r} is that of the api processes; take another name"
    if spec and model.prepare == "pool" and not spec.pooled:
        yield f'prepare = "pool": the engine {model.engine!r} prepares in its own workers alone'
    if spec and model.fetch and not spec.takes_bytes:
        yield f"fetch: models of the engine {model.engine!r} with this task take no bytes"


def problems_of(models: Iterable[Model]) -> dict[str, str]:
    """Returns fallbacks that are unknown, lead back, or take other inputs, by the model's key."""
    by_key = {model.key: model for model in models}
    return {
        key: f"{key}: degrade.fallback {model.degrade.fallback!r} {problem}"
        for key, model in by_key.items()
        if model.degrade.fallback and (problem := _problem(model, by_key))
    }


def _problem(model: Model, by_key: Mapping[str, Model]) -> str | None:
    other = by_key.get(model.degrade.fallback)
    if other is None:
        return f"is not declared here; there are: {', '.join(by_key)}"
    if other.spec.text_only and not model.spec.text_only:
        return "takes texts alone"
    tasks = {model.effective_task, other.effective_task}
    if len(tasks) == 2 and not tasks <= set(GENERAL_TASKS):
        return f"does {other.effective_task}, not {model.effective_task}"
    seen = {model.key}
    while other is not None and other.key not in seen:
        seen.add(other.key)
        other = by_key.get(other.degrade.fallback)
    return "leads back to it" if other is model else None
