"""Functions that misbehave, to serve in tests."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import clock
from workers.engines.protocol import Permanent, RateLimited, Transient


def moody(inputs: list[str]) -> list[Any]:
    """Upper-cases; breaks on "raise", and gives what can't be stored on "nan" and "nul"."""
    if "raise" in inputs:
        raise RuntimeError("can't stand it")
    if "exit" in inputs:
        sys.exit(3)
    if "short" in inputs:
        return []
    return list(_moody(inputs))


def _moody(inputs: list[str]) -> Iterator[Any]:
    special = {"nan": float("nan"), "nul": "a\0b", "surrogate": "\ud800", "object": object()}
    for text in inputs:
        yield special.get(text, text.upper())


def quoting(inputs: list[str]) -> list[str]:
    """Quotes its input as it fails, as many do."""
    raise ValueError(f"no such word: {inputs[0]!r}")


def slow(inputs: list[str]) -> list[str]:
    """Takes half a second; "long" takes five, "long FILE" makes FILE when it begins, and "long FILE
    SECONDS" takes those."""
    long = [text.split() for text in inputs if text.startswith("long")]
    for words in long:
        if len(words) > 1:
            Path(words[1]).touch()
    clock.sleep(max((float((words[2:] or ["5"])[0]) for words in long), default=0.5))
    return inputs


def deadly(inputs: list[str]) -> list[str]:
    """Upper-cases; takes the whole process with it on some texts."""
    for text in inputs:
        if text == "segv":
            # To this thread: where another gets it, this one goes on until that one wakes up.
            signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)
        if text == "exit":
            os._exit(3)
        if text == "leave":
            os._exit(0)
        if text == "hang":
            while True:
                pass
    return [text.upper() for text in inputs]


def flaky(inputs: list[str]) -> list[Any]:
    """Upper-cases; "fails N FILE" raises N times while it is alone before it works, "never" always
    fails for now, "limit FILE" says once when to come back; "memory", and a launch of more than
    eight, run out of memory. FILE counts, over all processes."""
    if len(inputs) > 8 or "memory" in inputs:
        raise MemoryError(f"{len(inputs)} rows are too many")
    if "refused" in inputs:
        raise Permanent("not this one")
    if any(text.startswith("limit") and _tries(text) == 1 for text in inputs):
        raise RateLimited("slowly", retry_after_s=0.2)
    if any(text.startswith(("fails", "never")) for text in inputs):
        _fail_for_now(inputs)
    return [text.upper() for text in inputs]


def _fail_for_now(inputs: list[str]) -> None:
    if len(inputs) > 1:
        raise Transient("not together")
    if inputs[0] == "never" or _tries(inputs[0]) <= int(inputs[0].split()[1]):
        raise Transient("not yet")


def _tries(text: str) -> int:
    file = Path(text.split()[-1])
    with file.open("a") as lines:
        lines.write("x")
    return file.stat().st_size


_kept: list[bytes] = []


def greedy(inputs: list[str]) -> list[str]:
    """Keeps 600 MiB for each "grow"; says which process it is."""
    _kept.extend(b"x" * (600 << 20) for text in inputs if text == "grow")
    return [str(os.getpid()) for _ in inputs]
