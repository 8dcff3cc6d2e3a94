"""What the fleet's workers serve with the engine `function`. A mark at the end of a text says how
it behaves; a text without one is harmless."""

import os
import signal
from hashlib import blake2b
from pathlib import Path

from jobs import clock
from workers.engines import protocol

SHOUT_S, MOODY_S = 0.04, 0.01  # a launch
MARKS = ("raise", "flaky", "exit", "segfault")

_Transient: type[Exception] = getattr(protocol, "Transient", RuntimeError)


def shout(inputs: list[str]) -> list[str]:
    """Upper-cases."""
    clock.sleep(SHOUT_S)
    return [text.upper() for text in inputs]


def moody(inputs: list[str]) -> list[str]:
    """Upper-cases, where no mark is in the way."""
    clock.sleep(MOODY_S)
    for text in inputs:
        _heed(text, alone=len(inputs) == 1)
    return [text.upper() for text in inputs]


def _heed(text: str, *, alone: bool) -> None:
    match text.rpartition("!")[2]:
        case "exit":
            os._exit(9)
        case "segfault":
            # To this thread: sent to the process, the main thread would die of it, and maybe only
            # after this launch was recorded.
            signal.raise_signal(signal.SIGSEGV)
        case "raise":
            raise ValueError("this text can't be shouted")
        case "flaky" if not _failed_before(text, alone):
            raise _Transient("not now")


def _failed_before(text: str, alone: bool) -> bool:
    """Its first failure that is its own: a launch that raises is tried again in halves. Kept in a
    file, which outlives this process."""
    file = Path(os.environ["MILLRACE_HOME"], "flaky", blake2b(text.encode()).hexdigest()[:24])
    found = file.exists()
    if alone and not found:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    return found
