"""Reads the models file (TOML) and reports all its problems at once."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from jobs.models import degradation as degrade
from jobs.models import pricing
from jobs.models.builtin_models import SAMPLES
from jobs.models.engines.builtin_engines import _TENSORS, ENGINES
from jobs.models.engines.engine_spec import GENERAL_TASKS, EngineSpec, Options
from jobs.models.inputs import tensors
from jobs.models.model import Limits, Model
from jobs.models.registry import Registry
from jobs.settings import SettingsError


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
    problems += [f"{path}: {problem}" for problem in problems_of(models)]
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
    if entry.get("engine") not in ENGINES and isinstance(entry.get("engine"), str):
        names = ", ".join(ENGINES)
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
    price = pricing.read(entry.get("price", {}), where, problems)
    if len(problems) > before:
        return None
    read = {"options": options, "limits": limits, "degrade": degraded, "price": price}
    return Model(**{**entry, **read})


def _kind(entry: Mapping[str, Any], where: str, problems: list[str]) -> EngineSpec | None:
    """Of its engine and task, where both are known."""
    kind = ENGINES.get(str(entry.get("engine")))
    known = tuple(kind.by_task) if kind and kind.by_task else GENERAL_TASKS
    task = entry.get("task", kind.task if kind else "any")
    if task in known:
        return kind and kind.doing(task)
    no = f"no task {task!r}" if "task" in entry else f"engine {entry.get('engine')!r} needs a task"
    problems.append(f"{where}: {no}; there are: {', '.join(known)}")
    return None


def _options(
    entry: Any, kind: EngineSpec | None, folder: Path, where: str, problems: list[str]
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


def problems_of(models: Iterable[Model]) -> list[str]:
    """Fallbacks that lead nowhere, back to where they began, or to what takes other inputs."""
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
