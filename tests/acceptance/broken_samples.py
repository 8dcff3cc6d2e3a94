"""Functions that misbehave, to serve in tests."""

import sys
from collections.abc import Iterator
from typing import Any

from jobs import clock


def moody(inputs: list[str]) -> list[Any]:
    """Upper-cases; breaks on "raise", and gives what can't be stored on "nan" and "nul"."""
    if "raise" in inputs:
        raise RuntimeError("can't stand it")
    if "exit" in inputs:
        sys.exit(3)
    if "short" in inputs:
        return []
    return list(_moody(inputs))


def _moody(inputs: list[str]) -> Iterator[Any]:
    special = {"nan": float("nan"), "nul": "a\0b", "surrogate": "\ud800", "object": object()}
    for text in inputs:
        yield special.get(text, text.upper())


def slow(inputs: list[str]) -> list[str]:
    """Takes half a second; "long" takes five."""
    clock.sleep(5.0 if "long" in inputs else 0.5)
    return inputs
