"""Speed of the machine, measured once at the beginning of a run, which all its processes share.

A fixed amount of Python and of fsyncs takes so long on the machine that the limits of tests were
chosen on; leases, heartbeats and limits of platforms are these times longer on a slower or busier
one. Limits of waits also follow the load that is there when they pass (`wait.slowdown`).
"""

import os
import tempfile
import time
from functools import cache

_VARIABLE = "MILLRACE_TESTS_PACE"
_LOOPS, _PYTHON_S = 20_000_000, 0.3
_SYNCS, _SYNC_S = 20, 0.004
_MOST = 8.0


@cache
def pace() -> float:
    """Returns how many times longer work takes here than on the machine of reference: 1 to 8.

    The first process of a run measures it, and its children inherit it.
    """
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = f"{min(_MOST, max(1.0, _python(), _disk())):.2f}"
    return float(os.environ[_VARIABLE])


def lease_s(seconds: float) -> float:
    """Returns a lease of so many seconds of the machine of reference: longer, where a process of
    this one may stand still for as long."""
    return max(6.0, seconds * pace())


def _python() -> float:
    began_s = time.perf_counter()
    for _ in range(_LOOPS):
        pass
    return (time.perf_counter() - began_s) / _PYTHON_S


def _disk() -> float:
    """An fsync counts half: few tests wait for the disk, since their databases don't."""
    with tempfile.TemporaryFile() as file:
        began_s = time.perf_counter()
        for _ in range(_SYNCS):
            file.write(b"x" * 8192)
            file.flush()
            os.fsync(file.fileno())
        return (time.perf_counter() - began_s) / (_SYNCS * _SYNC_S) / 2
