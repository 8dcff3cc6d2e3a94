"""Reads the models file (TOML) and reports all its problems at once."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jobs.models.builtin_models import SAMPLES
from jobs.models.engines.builtin_engines import ENGINES
from jobs.models.engines.engine_spec import GENERAL_TASKS, EngineSpec, EntryContext
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.problems import described
from jobs.settings import SettingsError

_adapter = cache(TypeAdapter)


def load(path: Path | None) -> Registry:
    """Returns the models of the file, or the samples without one. Raises SettingsError."""
    return SAMPLES if path is None else read(path)


def read(path: Path) -> Registry:
    """Reads the models file as it is now. Raises SettingsError with all its problems."""
    try:
        entries = tomllib.loads(path.read_text()).get("model", [])
    except OSError as error:
        raise SettingsError([f"models file {path} can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise SettingsError([f"models file {path} is not valid TOML: {error}"]) from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise SettingsError([f"{path}: a model is declared under [[model]], in double brackets"])
    problems = [] if entries else [f"{path} declares no [[model]]"]
    models: list[Model] = []
    for n, entry in enumerate(entries, start=1):
        try:
            models.append(_model(entry, path.parent.absolute()))
        except SettingsError as error:
            problems += [f"{path}: [[model]] number {n}: {problem}" for problem in error.problems]
    keys = Counter(model.key for model in models)
    problems += [f"{path} declares {key} twice" for key, count in keys.items() if count > 1]
    problems += [f"{path}: {problem}" for problem in problems_of(models)]
    if problems:
        raise SettingsError(problems)
    return Registry(models)


def read_table(kind: Any, table: Any, path: str = "", context: EntryContext | None = None) -> Any:
    """Reads a table of the file as a dataclass or a pydantic model.

    path: dotted name of the table. Raises SettingsError with all its problems.
    """
    try:
        return _adapter(kind).validate_python(table, context=context)
    except ValidationError as error:
        raise SettingsError(described(error, kind, path)) from None


def _model(entry: Mapping[str, Any], folder: Path) -> Model:
    problems: list[str] = []
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
    try:
        model: Model = read_table(Model, table)
        problems += _truncate_problems(model, spec)
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


def _truncate_problems(model: Model, spec: EngineSpec | None) -> Iterator[str]:
    value = model.degrade.truncate
    if spec is None or (value == 0 and value is not False):
        return
    param = spec.params.get("truncate")
    if param is None:
        yield "degrade.truncate: this engine takes no parameter 'truncate'"
    elif not param.accepts(value):
        yield f"degrade.truncate must be {param.expected}"


def problems_of(models: Iterable[Model]) -> list[str]:
    """Returns fallbacks that are unknown, lead back, or take other inputs."""
    by_key = {model.key: model for model in models}
    return [
        f"{model.key}: degrade.fallback {model.degrade.fallback!r} {problem}"
        for model in by_key.values()
        if model.degrade.fallback and (problem := _problem(model, by_key))
    ]


def _problem(model: Model, by_key: Mapping[str, Model]) -> str | None:
    other = by_key.get(model.degrade.fallback)
    if other is None:
        return f"is not declared here; there are: {', '.join(by_key)}"
    if other.spec.text_only and not model.spec.text_only:
        return "takes texts alone"
    if (
        "tensors" in (model.effective_task, other.effective_task)
        and model.effective_task != other.effective_task
    ):
        return f"does {other.effective_task}, not {model.effective_task}"
    seen = {model.key}
    while other is not None and other.key not in seen:
        seen.add(other.key)
        other = by_key.get(other.degrade.fallback)
    return "leads back to it" if other is model else None
