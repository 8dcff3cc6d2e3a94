"""Life of a child process: one task after another, until its parent ends."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process, reduction
from multiprocessing.connection import Connection
from typing import IO, Any

from jobs.processes.memory import collect_and_freeze
from jobs.settings import Settings
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from jobs.telemetry.reports.child_processes import ChildCounters

Handler = Callable[[Any, IO[bytes] | None], Any]
"""Runs a task, with the file that was sent along, and returns its result. It must not raise."""


@dataclass(frozen=True, slots=True)
class ChildKind:
    """Kind of process that a pool starts; it is pickled."""

    name: str  #: of the process, in its log
    start: Callable[[Settings], Handler]  #: function of a module, called once in the child
    nice: int  #: added to the parent's niceness
    oom_score: int = 0  #: of 1000: where memory is short, the highest is killed first


def serve(pipe: Connection, kind: ChildKind, settings: Settings) -> None:
    """Runs the tasks that come through the pipe; answers (result, increases of counters)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(kind.nice)
    if kind.oom_score:
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write(str(kind.oom_score))
    logs.configure(kind.name, settings.log_format)
    handle = kind.start(settings)
    record.set_enabled(settings.metrics)
    reports, modules = ChildCounters(), 0
    with suppress(EOFError):  # raised when the parent is gone
        while True:
            task, has_file = pipe.recv()
            if has_file:
                with os.fdopen(reduction.recv_handle(pipe), "rb") as file:
                    result = handle(task, file)
            else:
                result = handle(task, None)
            pipe.send((result, reports.increases()))
            if len(sys.modules) > modules:  # a task's function brings its own
                modules = len(sys.modules)
                collect_and_freeze()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent
    parent.join()
    os._exit(1)
