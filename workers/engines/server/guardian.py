"""`python guardian.py PARENT PROGRAM ARGUMENT…`: runs a server that ends with the process PARENT.

It imports nothing of ours, since it is run by its path. The server is asked to end (SIGTERM) once
the parent has ended, or once the guardian is told so by SIGTERM; what hasn't ended after a while is
killed, with all processes that the server has started. The kernel kills the server where the
guardian itself is killed.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

GRACE_S = 5.0
"""For the server to end by itself."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> int:
    """Runs the server; returns its exit status, as a shell does."""
    parent, *command = sys.argv[1:]
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the server become children of ours
    stop, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ended = os.pidfd_open(int(parent))
    except ProcessLookupError:
        return 1
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    _guard(server, [ended, stop])
    server.kill()
    status = server.wait()
    _kill_children()
    return status if status >= 0 else 128 - status


def _guard(server: "subprocess.Popen[bytes]", causes: list[int]) -> None:
    """Returns once the server has ended, or doesn't after it was asked to."""
    over = os.pidfd_open(server.pid)
    select.select([over, *causes], [], [])
    server.terminate()
    select.select([over], [], [], GRACE_S)


def _kill_children() -> None:
    """Kills all children, and theirs, which become ours then."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in map(int, pids):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
