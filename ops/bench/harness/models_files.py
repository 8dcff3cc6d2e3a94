"""Models files that benchmarks write: the samples, with what a benchmark changes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model


def sample(of: str, /, **changes: Any) -> Model:
    """A sample model with other values; limits may be given in part, as a mapping."""
    model = SAMPLES.resolve(of)
    if isinstance(limits := changes.get("limits"), Mapping):
        changes["limits"] = replace(model.limits, **limits)
    return replace(model, **changes)


def models_file(*models: Model) -> str:
    """TOML that declares these."""
    return "\n".join(_entry(model) for model in models)


def _entry(model: Model) -> str:
    usual = Model(model.name, model.version, model.engine)
    values = {found.name: getattr(model, found.name) for found in fields(model)}
    said = {"name", "version", "engine"} | {n for n in values if values[n] != getattr(usual, n)}
    lines = [f"{name} = {_toml(value)}" for name, value in values.items() if name in said]
    return "\n".join(["[[model]]", *lines, ""])


def _toml(value: Any) -> str:
    """A number, a truth or a string is written as in JSON; a table is not."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        pairs = [f"{key} = {_toml(inner)}" for key, inner in value.items()]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
