"""Large bodies are taken in by processes of their own: calls and small jobs of the same api don't
wait for their parsing. Such a process is started when it is first needed, and dies with the api.
"""

import asyncio
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, parent_process, reduction
from multiprocessing.connection import Connection
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from fastapi.concurrency import run_in_threadpool

from api.services.resources import Resources
from jobs.blobs.payloads import Payloads
from jobs.errors import MillraceError, Unavailable
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from jobs.telemetry.reports import child_processes
from jobs.telemetry.reports.child_processes import ChildCounters
from jobs.telemetry.tracing.context import CURRENT

_PROCESSES = 2
_NICE = 5  # small things go first
_SPAWN = get_context("spawn")

P = ParamSpec("P")
T = TypeVar("T")
Take = Callable[Concatenate[Resources, IO[bytes], P], T]
"""What is done with a body; a function of a module."""


class IngestPool:
    """The processes for ingests of one api process; two at a time, the others wait their turn."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._turns = asyncio.Semaphore(_PROCESSES)
        self._lock = threading.Lock()  # guards what is below
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    async def run(self, take: Take[P, T], body: IO[bytes], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `take` returns, or raises, in a process of its own; all of it is pickled. Raises
        Unavailable where that process was killed."""
        async with self._turns:
            question = CURRENT.get(), take, args, kwargs
            answer = await run_in_threadpool(self._ask, body, question)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Busy or not, they end."""
        with self._lock:
            for child in self._all:
                child.kill()

    def _ask(self, body: IO[bytes], question: Any) -> Any:
        child = self._next()
        try:
            answer, counted = child.ask(body.fileno(), question)
        except (EOFError, OSError) as error:
            child.kill()
            message = "the process that took the body in was killed; send it once more"
            raise Unavailable(message, retry_after_s=1) from error
        child_processes.add_increases(counted)
        with self._lock:
            self._idle.append(child)
        return answer

    def _next(self) -> "_Child":
        """One that is idle and alive, or a new one."""
        with self._lock:
            self._all = {child for child in self._all if child.alive()}
            while self._idle:
                child = self._idle.pop()
                if child in self._all:
                    return child
            child = _Child(self._settings)
            self._all.add(child)
            return child


class _Child:
    """One process, which does one thing at a time."""

    def __init__(self, settings: Settings) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, settings), daemon=True)
        self._process.start()
        theirs.close()  # ours is the only other end: it reads EOF when the process is gone

    def alive(self) -> bool:
        return self._process.is_alive()

    def ask(self, fd: int, question: Any) -> Any:
        """The answer, and what was counted for it. Raises EOFError or OSError where the process is
        gone."""
        self._pipe.send(question)
        reduction.send_handle(self._pipe, fd, self._process.pid)
        return self._pipe.recv()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, settings: Settings) -> None:
    """The life of such a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the api, which ends us
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.nice(_NICE)
    logs.configure("ingest", settings.log_format)
    database = db.connect(settings.database_url, pool_size=1, role=db.API)
    file = ModelsFile(settings.models)
    resources = Resources(
        settings,
        file,
        database,
        Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint),
    )
    record.set_enabled(settings.metrics)
    counters = ChildCounters()
    with suppress(EOFError):  # the api is gone
        while True:
            trace, take, args, kwargs = pipe.recv()
            CURRENT.set(trace)
            with os.fdopen(reduction.recv_handle(pipe), "rb") as body:
                body.seek(0)
                file.poll()
                answer = _outcome(partial(take, resources, body, *args, **kwargs))
                pipe.send((answer, counters.increases()))


def _outcome(act: Callable[[], Any]) -> Any:
    """What it returns or, as a value, what it raises."""
    try:
        return act()
    except Exception as error:
        if not isinstance(error, MillraceError):
            error.add_note(traceback.format_exc())  # which doesn't travel by itself
        return _portable(error)


def _portable(error: Exception) -> Exception:
    """The same exception or, where it can't be pickled, one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def _die_with_parent() -> None:
    """However it ended."""
    parent = parent_process()
    assert parent
    parent.join()
    os._exit(1)
