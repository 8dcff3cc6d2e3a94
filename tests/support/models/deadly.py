"""A function that kills its worker, or holds it, to serve in tests."""

import fcntl
import os
from pathlib import Path

from jobs import clock

LAUNCHES = "launches.txt"
RELEASED = "released"


def deadly(inputs: list[str]) -> list[str]:
    """Upper-cases. "die" ends the process; "hold …" waits for the file RELEASED in the home.
    Every launch leaves a line in LAUNCHES: pid and texts, between tabs. It holds a shared lock on
    that file until it ends."""
    home = Path(os.environ["MILLRACE_HOME"])
    with (home / LAUNCHES).open("a") as log:
        fcntl.flock(log, fcntl.LOCK_SH)
        print(os.getpid(), *inputs, sep="\t", file=log, flush=True)
        if "die" in inputs:
            os._exit(1)
        while any(text.startswith("hold") for text in inputs) and not (home / RELEASED).exists():
            clock.sleep(0.01)
    return [text.upper() for text in inputs]
