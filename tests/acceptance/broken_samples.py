"""Functions that misbehave, to serve in tests."""

from collections.abc import Iterator
from typing import Any


def moody(inputs: list[str]) -> list[Any]:
    """Upper-cases; breaks on "raise", and gives what can't be stored on "nan" and "nul"."""
    if "raise" in inputs:
        raise RuntimeError("can't stand it")
    if "short" in inputs:
        return []
    return list(_moody(inputs))


def _moody(inputs: list[str]) -> Iterator[Any]:
    special = {"nan": float("nan"), "nul": "a\0b", "surrogate": "\ud800", "object": object()}
    for text in inputs:
        yield special.get(text, text.upper())
