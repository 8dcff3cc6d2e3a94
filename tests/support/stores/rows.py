"""Rows of the store, made by hand."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

R = TypeVar("R")


def made(kind: type[R], values: Mapping[str, Any]) -> R:
    """A row with these values, and None everywhere else."""
    names = (field.name for field in fields(kind))  # type: ignore[arg-type]
    return kind(**{name: values.get(name) for name in names})
