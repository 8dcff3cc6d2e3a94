"""Entries of models files, as a user writes them."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from jobs.models.model import Model

_FIELDS = {field.name for field in fields(Model)}


def model(name: str, engine: str, **given: Any) -> str:
    """A model of an engine. given: fields of a model; all others are options of its engine."""
    entry = {"name": name, "version": "1", "engine": engine}
    entry |= {key: value for key, value in given.items() if key in _FIELDS}
    options = {key: value for key, value in given.items() if key not in _FIELDS}
    lines = [f"{key} = {toml(value)}" for key, value in entry.items()]
    if options:
        lines.append(f"options = {toml(options)}")
    return "\n".join(["[[model]]", *lines, "", ""])


def function(path: str, name: str = "", **given: Any) -> str:
    """A model that is a function of texts, of tests.support.models unless it says so; with its
    name, unless it has another."""
    module, _, its = path.partition(":")
    full = path if "." in module else f"tests.support.models.{path}"
    return model(name or its, "function", function=full, **given)


def toml(value: Any) -> str:
    """Text of a value: numbers, booleans and strings are written as in JSON, tables are not."""
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()]
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)
