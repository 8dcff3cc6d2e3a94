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
        _heed(text)
    return [text.upper() for text in inputs]


def _heed(text: str) -> None:
    match text.rpartition("!")[2]:
        case "exit":
            os._exit(9)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "raise":
            raise ValueError("this text can't be shouted")
        case "flaky" if not _came_before(text):
            raise _Transient("not now")


def _came_before(text: str) -> bool:
    """The memory of what is flaky: a file for each, so that it outlives this process."""
    folder = Path(os.environ["MILLRACE_HOME"]) / "flaky"
    folder.mkdir(exist_ok=True)
    try:
        (folder / blake2b(text.encode(), digest_size=12).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return True
    return False
