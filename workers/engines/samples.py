"""Sample functions for the engines `function` and `tensors`, for trials and benchmarks."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from jobs import clock


def batchstring(inputs: list[str]) -> list[str]:
    """Upper-cases 1 to 100 strings in 100 ms. Raises ValueError for another number."""
    if not 1 <= len(inputs) <= 100:
        raise ValueError(f"takes 1 to 100 strings, got {len(inputs)}")
    clock.sleep(0.1)
    return [text.upper() for text in inputs]


def sum_and_difference(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Adds and subtracts INPUT0 and INPUT1, element by element."""
    left, right = arrays["INPUT0"], arrays["INPUT1"]
    return {"OUTPUT0": left + right, "OUTPUT1": left - right}
