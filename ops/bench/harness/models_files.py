"""Models files of benchmarks: the samples with other values."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model


def sample(name: str, /, **changes: Any) -> Model:
    """Sample model with other values; limits may be given in part, as a mapping."""
    model = SAMPLES.resolve(name)
    if isinstance(limits := changes.get("limits"), Mapping):
        changes["limits"] = replace(model.limits, **limits)
    return replace(model, **changes)


def models_file(*models: Model) -> str:
    """TOML text that declares these models."""
    return "\n".join(_entry(model) for model in models)


def _entry(model: Model) -> str:
    default = Model(model.name, model.version, model.engine, created=model.created)
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    names = {"name", "version", "engine"} | {n for n in values if values[n] != getattr(default, n)}
    lines = [f"{name} = {_toml(value)}" for name, value in values.items() if name in names]
    return "\n".join(["[[model]]", *lines, ""])


def _toml(value: Any) -> str:
    """Text of a value: numbers, booleans and strings are written as in JSON, tables are not."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        pairs = [f"{key} = {_toml(inner)}" for key, inner in value.items() if inner is not None]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
