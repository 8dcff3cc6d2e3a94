"""Parent's side of child processes: they start on demand and are used again."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from multiprocessing import get_context, reduction
from typing import IO, Any

from jobs import clock
from jobs.processes import child
from jobs.processes.child import ChildKind
from jobs.processes.memory import resident_mb
from jobs.processes.stopped import is_stopped
from jobs.settings import Settings
from jobs.telemetry.reports import child_processes

_SPAWN = get_context("spawn")
_LOOK_S = 0.05  # between two looks at the memory of a process
_WATCH_S = 1.0  # between two looks at whether processes are stopped
STOPPED_FOR_S = 10.0
"""Time after which a process that a signal has stopped is killed."""

_KILLED_WITHIN_S = 5.0
_EXIT_S = 1.0  # from the end of its pipe to its exit status

_log = logging.getLogger(__name__)


class OutOfMemory(Exception):
    """Raised where a process was killed because its task needs more memory than it may have."""

    def __init__(self, max_mb: int) -> None:
        super().__init__(f"needs more than {max_mb} MiB of memory (MILLRACE_CHILD_MAX_MB)")


class Child:
    """One process, which runs one task at a time in bounded memory."""

    def __init__(self, kind: ChildKind, settings: Settings) -> None:
        self._max_mb = settings.child_max_mb
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=child.serve, args=(theirs, kind, settings), name=kind.name, daemon=True
        )
        self._process.start()
        theirs.close()  # ours is the only other end: it reads EOF when the process is gone
        self._stopped_s = 0.0  # since when a signal has stopped it, monotonic; 0: it runs
        self._killed = False

    def send(self, task: Any, file: IO[bytes] | None = None) -> None:
        """Sends a task, pickled, and an open file. Raises OSError where the process is gone."""
        self._pipe.send((task, file is not None))
        if file is not None:
            reduction.send_handle(self._pipe, file.fileno(), self._process.pid)

    def wait(self, timeout_s: float) -> bool:
        """Returns True if a result is there, or the process is gone.

        Raises OutOfMemory where the process has grown too large: it is killed then.
        """
        until_s = clock.monotonic() + timeout_s
        while not self._pipe.poll(min(_LOOK_S, timeout_s)):
            if resident_mb(self._process.pid) > self._max_mb:
                self.kill()
                raise OutOfMemory(self._max_mb)
            if clock.monotonic() >= until_s:
                return False
        return True

    def result(self) -> Any:
        """Waits for the task's result. Raises EOFError or OSError where the process is gone,
        OutOfMemory as `wait`."""
        self.wait(inf)
        result, counted = self._pipe.recv()
        child_processes.add_increases(counted)
        return result

    def was_killed(self) -> bool:
        """Returns True if the process was ended by a signal from outside, not by a crash."""
        self._process.join(_EXIT_S)
        return self._process.exitcode in (-signal.SIGKILL, -signal.SIGTERM)

    def alive(self) -> bool:
        """Returns True while the process runs, and was not killed."""
        return not self._killed and self._process.is_alive()

    def send_signal(self, number: int) -> None:
        """Sends a signal, which its handler understands."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid or 0, number)

    def kill(self) -> None:
        """Ends the process, busy or not. One that waits in the kernel is left behind."""
        self._killed = True
        self._process.kill()
        self._process.join(_KILLED_WITHIN_S)
        if self._process.is_alive():
            _log.error("%s doesn't end after SIGKILL, and is left behind", self)

    def end_stopped(self) -> None:
        """Kills a process that a signal stopped some time ago: who waits for it reads EOF."""
        now_s = clock.monotonic()
        if not is_stopped(self._process.pid):
            self._stopped_s = 0.0
        elif not self._stopped_s:
            self._stopped_s = now_s
        elif now_s >= self._stopped_s + STOPPED_FOR_S and not self._killed:
            _log.error("%s was stopped (SIGSTOP) for %g s: killed", self, STOPPED_FOR_S)
            self._killed = True
            self._process.kill()

    def __str__(self) -> str:
        return f"the process {self._process.name} (pid {self._process.pid})"


class ProcessPool:
    """Lends child processes to threads; starts one where none is idle."""

    def __init__(self, kind: ChildKind, settings: Settings) -> None:
        self._kind, self._settings = kind, settings
        self._lock = threading.Lock()  # guards the two below
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._watcher: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def child(self) -> Iterator[Child]:
        """Lends a process; kills it where the block raises."""
        lent = self._take()
        try:
            yield lent
        except BaseException:
            lent.kill()
            raise
        with self._lock:
            self._idle.append(lent)

    def close(self) -> None:
        """Ends all processes, busy or not."""
        self._closed.set()
        with self._lock:
            for one in self._all:
                one.kill()

    def _take(self) -> Child:
        with self._lock:
            self._all = {one for one in self._all if one.alive()}
            while self._idle:
                if (idle := self._idle.pop()) in self._all:
                    return idle
            started = Child(self._kind, self._settings)
            self._all.add(started)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
            return started

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_S):
            with self._lock:
                running = list(self._all)
            for one in running:
                one.end_stopped()
