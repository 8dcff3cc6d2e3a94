"""Functions of named arrays."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from jobs import clock

Arrays = Mapping[str, NDArray[Any]]

SLOW_S = 0.1


def same(arrays: Arrays) -> Arrays:
    return arrays


def slow(arrays: Arrays) -> Arrays:
    clock.sleep(SLOW_S)
    return arrays


def nan(arrays: Arrays) -> Arrays:
    return {"x": arrays["x"] * float("nan")}


def broken(arrays: Arrays) -> Arrays:
    raise RuntimeError("nothing works today")
