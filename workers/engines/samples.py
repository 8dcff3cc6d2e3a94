"""Functions to serve with the engines `function` and `tensors`, for trials and benchmarks."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from jobs import clock


def batchstring(inputs: list[str]) -> list[str]:
    """Upper-cases up to 100 strings; takes 100 ms whatever it gets."""
    if not 1 <= len(inputs) <= 100:
        raise ValueError(f"takes 1 to 100 strings, got {len(inputs)}")
    clock.sleep(0.1)
    return [text.upper() for text in inputs]


def sum_and_difference(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Of two inputs, element by element."""
    left, right = arrays["INPUT0"], arrays["INPUT1"]
    return {"OUTPUT0": left + right, "OUTPUT1": left - right}
