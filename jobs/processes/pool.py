"""Parent's side of child processes: they start on demand and are used again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context, reduction
from typing import IO, Any

from jobs.processes import child
from jobs.processes.child import ChildKind
from jobs.settings import Settings
from jobs.telemetry.reports import child_processes

_SPAWN = get_context("spawn")


class Child:
    """One process, which runs one task at a time."""

    def __init__(self, kind: ChildKind, settings: Settings) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(
            target=child.serve, args=(theirs, kind, settings), name=kind.name, daemon=True
        )
        self._process.start()
        theirs.close()  # ours is the only other end: it reads EOF when the process is gone

    def send(self, task: Any, file: IO[bytes] | None = None) -> None:
        """Sends a task, pickled, and an open file. Raises OSError where the process is gone."""
        self._pipe.send((task, file is not None))
        if file is not None:
            reduction.send_handle(self._pipe, file.fileno(), self._process.pid)

    def wait(self, timeout_s: float) -> bool:
        """Returns True if a result is there, or the process is gone."""
        return self._pipe.poll(timeout_s)

    def result(self) -> Any:
        """Waits for the task's result. Raises EOFError or OSError where the process is gone."""
        result, counted = self._pipe.recv()
        child_processes.add_increases(counted)
        return result

    def alive(self) -> bool:
        """Returns True while the process runs."""
        return self._process.is_alive()

    def kill(self) -> None:
        """Ends the process, busy or not."""
        self._process.kill()
        self._process.join()


class ProcessPool:
    """Lends child processes to threads; starts one where none is idle."""

    def __init__(self, kind: ChildKind, settings: Settings) -> None:
        self._kind, self._settings = kind, settings
        self._lock = threading.Lock()  # guards the two below
        self._idle: list[Child] = []
        self._all: set[Child] = set()

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
            return started
