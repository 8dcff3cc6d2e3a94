"""Servers that a killed owner of the home left running."""

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from jobs import clock
from ops.embedded.errors import EmbeddedError

_END_WITHIN_S = 15.0
_POLL_S = 0.01


def find_processes(program: str, tag: str) -> list[int]:
    """Pids whose title begins with the program and holds the tag.

    Reads command lines, which every user may: /proc/*/cwd and exe need a capability.
    """
    title = re.compile(rf"([^\0]*/)?{re.escape(program)}[\0: ].*{re.escape(tag)}", re.DOTALL)
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if title.match((entry / "cmdline").read_bytes().decode(errors="replace")):
                pids.append(int(entry.name))
    return pids


def end_processes(
    program: str, tag: str, stop_signal: signal.Signals, main_pid: int | None = None
) -> None:
    """Ends processes that an earlier start left. The caller holds the lock of the home.

    A main process gets stop_signal and ends its children; without one, each process gets SIGTERM.
    """
    left = find_processes(program, tag)
    if main_pid in left:
        _signal([main_pid], stop_signal)
    else:
        _signal(left, signal.SIGTERM)
    deadline = clock.monotonic() + _END_WITHIN_S
    while left := find_processes(program, tag):
        if clock.monotonic() > deadline:
            raise EmbeddedError(
                f"An earlier {program} of this home (process {', '.join(map(str, left))}) doesn't "
                "end. Kill it (kill -9), then start again."
            )
        clock.sleep(_POLL_S)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
