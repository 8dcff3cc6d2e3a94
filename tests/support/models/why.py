"""Functions that get into trouble, to be explained."""

import os

from jobs import clock

LAUNCH_S = 0.1


def steady(inputs: list[str]) -> list[str]:
    clock.sleep(LAUNCH_S)
    return inputs


def deadly(inputs: list[str]) -> list[str]:
    """Ends its process on "die"."""
    if "die" in inputs:
        os._exit(1)
    return inputs
