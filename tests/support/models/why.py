"""Functions that get into trouble, to be explained."""

import os

from jobs import clock

LAUNCH_S = 0.1
CHARACTER_S = 0.000_1


def steady(inputs: list[str]) -> list[str]:
    clock.sleep(LAUNCH_S)
    return inputs


def by_length(inputs: list[str]) -> list[str]:
    """Takes as long as the texts are."""
    clock.sleep(CHARACTER_S * sum(map(len, inputs)))
    return inputs


def deadly(inputs: list[str]) -> list[str]:
    """Ends its process on "die"."""
    if "die" in inputs:
        os._exit(1)
    return inputs
