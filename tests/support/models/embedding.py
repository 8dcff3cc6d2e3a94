"""A function that embeds, slowly, and keeps a log."""

import os
from pathlib import Path

from jobs import clock

LAUNCHES = "embedded.txt"
RELEASED = "released"
LAUNCH_S = 0.05


def lengths(texts: list[str]) -> list[list[float]]:
    """[length, 1] of each text. "broken" breaks; "hold …" waits for the file RELEASED in the home.
    Every text leaves a line in LAUNCHES."""
    home = Path(os.environ["MILLRACE_HOME"])
    with (home / LAUNCHES).open("a") as log:
        log.writelines(f"{text}\n" for text in texts)
    if "broken" in texts:
        raise RuntimeError("it is broken")
    clock.sleep(LAUNCH_S)
    while any(text.startswith("hold") for text in texts) and not (home / RELEASED).exists():
        clock.sleep(0.01)
    return [[float(len(text)), 1.0] for text in texts]
