"""Functions that take their time, whatever they get."""

from pathlib import Path

from jobs import clock

LAUNCH_S = 2.0


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
