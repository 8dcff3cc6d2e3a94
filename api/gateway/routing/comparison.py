"""Comparison of two outputs of one input."""

from math import isclose
from typing import Any, Literal

import orjson

Comparison = Literal["equal", "close", "different"]

TOLERANCE = 1e-3
"""Relative difference of numbers that are close; of small ones, the absolute difference."""


def compare(one: bytes, other: bytes) -> Comparison:
    """Compares two outputs, as JSON: close where only numbers differ, each a little."""
    if one == other:
        return "equal"
    first, second = orjson.loads(one), orjson.loads(other)
    if _alike(first, second, 0.0):
        return "equal"
    return "close" if _alike(first, second, TOLERANCE) else "different"


def _alike(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _alike(mine, its, tolerance) for mine, its in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _alike(value, other[name], tolerance) for name, value in one.items()
        )
    return bool(one == other)
