"""Life of a child process of an engine: it serves its parent's socket, and ends with it."""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

_OOM_SCORE = "800"  # of 1000: where memory is short, this process is killed and not its parent


def live(serve: Callable[[Connection], None]) -> None:
    """Serves the socket and the process that the arguments name (FD PARENT)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    fd, parent = map(int, sys.argv[1:3])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    serve(Connection(fd))


def _end_with(parent: int) -> None:
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(parent)], [], [])
    os._exit(1)
