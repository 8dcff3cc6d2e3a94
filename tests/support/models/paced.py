"""Functions that take their time, whatever they get."""

from pathlib import Path

from jobs import clock
from tests.support.models.entries import function

LAUNCH_S = 1.0
CHARACTER_S = 0.000_1
STEADY = function("paced:steady", limits={"max_batch": 10, "slice_items": 50})
"""Models file with `steady`, at a hundred items a second."""


def steady(inputs: list[str]) -> list[str]:
    clock.sleep(0.1)
    return inputs


def slow(inputs: list[str]) -> list[str]:
    """Makes the file that an input names, if it does, so that a test knows it's in a launch."""
    for text in inputs:
        if text.startswith("/"):
            Path(text).touch()
    clock.sleep(LAUNCH_S)
    return inputs


def by_length(inputs: list[str]) -> list[str]:
    """Takes as long as the texts are."""
    clock.sleep(CHARACTER_S * sum(map(len, inputs)))
    return inputs


def vectors(inputs: list[str]) -> list[list[float]]:
    """Answers at once; what begins with "wait" takes a second, what begins with "fail" raises."""
    if any(text.startswith("wait") for text in inputs):
        clock.sleep(1.0)
    if any(text.startswith("fail") for text in inputs):
        raise ValueError("it was told to fail")
    return [[float(len(text)), 0.5] for text in inputs]
