"""Functions that the fleet's workers serve; a mark at the end of a text selects how it fails."""

import os
import signal
from hashlib import blake2b
from pathlib import Path

from jobs import clock
from workers.engines.protocol import Transient

SHOUT_S, MOODY_S = 0.04, 0.01  # a launch


def shout(inputs: list[str]) -> list[str]:
    """Upper-cases."""
    clock.sleep(SHOUT_S)
    return [text.upper() for text in inputs]


def moody(inputs: list[str]) -> list[str]:
    """Upper-cases texts without a mark."""
    clock.sleep(MOODY_S)
    for text in inputs:
        _heed(text, alone=len(inputs) == 1)
    return [text.upper() for text in inputs]


def _heed(text: str, *, alone: bool) -> None:
    match text.rpartition("!")[2]:
        case "exit":
            os._exit(9)
        case "segfault":
            # To this thread: sent to the process, it would hit the main thread, perhaps only after
            # this launch was recorded.
            signal.raise_signal(signal.SIGSEGV)
        case "raise":
            raise ValueError("this text can't be shouted")
        case "flaky" if not _failed_before(text, alone):
            raise Transient("not now")


def _failed_before(text: str, alone: bool) -> bool:
    """Returns True unless this is the text's first failure alone (failed launches are halved).

    A file stores that, beyond the life of this process, beside the home, whose disk may be full.
    """
    folder = Path(os.environ["MILLRACE_HOME"]).with_name("flaky")
    file = folder / blake2b(text.encode()).hexdigest()[:24]
    found = file.exists()
    if alone and not found:
        folder.mkdir(exist_ok=True)
        file.touch()
    return found
