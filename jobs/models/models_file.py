"""Reads the models file (TOML) and reports all its problems at once."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.models import tables
from jobs.models.builtin_models import SAMPLES
from jobs.models.engines.builtin_engines import ENGINES
from jobs.models.engines.engine_spec import GENERAL_TASKS, EngineSpec
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.models.tables import TableError
from jobs.settings import SettingsError


def load(path: Path | None) -> Registry:
    """Returns the models of the file, or the samples without one. Raises SettingsError."""
    return SAMPLES if path is None else read(path)


def read(path: Path) -> Registry:
    """Reads the models file as it is now. Raises SettingsError with all its problems."""
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
    problems += [f"{path}: {problem}" for problem in problems_of(models)]
    if problems:
        raise SettingsError(problems)
    return Registry(models)


def _model(entry: Mapping[str, Any], folder: Path, where: str, problems: list[str]) -> Model | None:
    """Reads one entry; paths among its options begin at the folder."""
    found: list[str] = []
    spec = _spec(entry, found)
    table = dict(entry)
    options, limits = entry.get("options", {}), entry.get("limits", {})
    if spec is None:
        table.pop("task", None)
    elif spec.options and isinstance(options, dict):
        try:
            parsed = tables.read(spec.options, options, "options", folder.absolute())
        except TableError as error:
            found += error.problems
        else:
            table["options"] = parsed.model_dump(exclude_unset=True)
            if isinstance(limits, dict):
                found += parsed.limit_problems(limits, spec.task)
                table["limits"] = parsed.limits(spec.task) | limits
    try:
        model = tables.read(Model, table)
    except TableError as error:
        found += error.problems
    else:
        found += _truncate_problems(model, spec)
    problems += [f"{where}: {problem}" for problem in found]
    return None if found else model


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
