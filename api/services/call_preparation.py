"""Preparation of large calls in child processes: a body with many values, or texts to tokenize,
holds up no other request of this process."""

import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from anyio import CancelScope
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from api.http.connections.connection import arrived_s, client_disconnected
from api.services.turns import TenantTurns
from jobs import clock
from jobs.errors import DeadlinePassed, MillraceError, TooLarge, Unavailable
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.processes.child import ChildKind, Handler
from jobs.processes.pool import Child, OutOfMemory, ProcessPool
from jobs.settings import Settings

_PROCESSES, _OF_TENANT = 3, 2  # of one api, and of one tenant at a time
_FIRST_AFTER_S = 3.0  # so that it takes no CPU from the start of the platform
PREPARED_S = "millrace.prepared_s"
"""In a request's scope: time at which a child process had prepared it, on the process's clock."""

P = ParamSpec("P")
T = TypeVar("T")


class CallPreparation:
    """Child processes of one api process; tenants take turns.

    models: what the registry holds is sent along with each task.
    """

    def __init__(self, settings: Settings, models: ModelsFile) -> None:
        self._models = models
        self._turns = TenantTurns(_PROCESSES, _OF_TENANT)
        self._pool = ProcessPool(ChildKind("calls", _start, nice=0), settings)
        self._starter = threading.Timer(_FIRST_AFTER_S, self._start_one)
        self._starter.daemon = True

    def start(self) -> None:
        """Starts a process in the background, so that the first call doesn't wait for it."""
        self._starter.start()

    def _start_one(self) -> None:
        with suppress(Unavailable):  # stopped meanwhile
            self._run(_Task(("", _nothing, (), {}), 0.0))

    async def run(
        self,
        request: Request,
        tenant: str,
        prepare: Callable[Concatenate[Registry, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Returns what `prepare`, a function of a module, returns, or raises what it raises, in a
        child process; arguments and result are pickled. Raises Unavailable where that process was
        killed, ClientDisconnect where the client left: the process is free again then."""
        task = _Task((tenant, prepare, args, kwargs), arrived_s(request.scope))
        with client_disconnected(request.scope, request.receive) as left, CancelScope() as waiting:

            def leave(_: object) -> None:
                if not task.interrupt():
                    waiting.cancel()

            left.add_done_callback(leave)
            try:
                async with self._turns.place(tenant):
                    result = await run_in_threadpool(self._run, task)
            finally:
                left.remove_done_callback(leave)
        if waiting.cancelled_caught:
            raise ClientDisconnect
        if isinstance(result, Exception):
            raise result
        request.scope[PREPARED_S] = clock.monotonic()
        return result  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Ends the processes, busy or not."""
        self._starter.cancel()
        self._pool.close()

    def _run(self, task: "_Task") -> Any:
        try:
            with self._pool.child() as child, task.running_in(child):
                child.send((self._models.registered, task.since_s, *task.work))
                return child.result()
        except OutOfMemory as error:
            raise TooLarge(f"reading the body {error}: make it smaller") from error
        except (EOFError, OSError) as error:
            message = "the process that prepared the call was killed; send it once more"
            raise Unavailable(message, retry_after_s=1) from error


class _Task:
    """One preparation, which may be interrupted while a child process works on it."""

    def __init__(self, work: Any, since_s: float) -> None:
        self.work, self.since_s = work, since_s
        self._lock = threading.Lock()  # guards the child: it is another's after this task
        self._child: Child | None = None

    @contextmanager
    def running_in(self, child: Child) -> Iterator[None]:
        """Lets `interrupt` reach the child during the block."""
        self._child = child
        try:
            yield
        finally:
            with self._lock:
                self._child = None

    def interrupt(self) -> bool:
        """Ends the work in the child process. Returns False where it has not begun, or has
        ended."""
        with self._lock:
            if self._child:
                self._child.send_signal(_LEFT)
            return self._child is not None


# -- in the child process

_LEFT = signal.SIGUSR1  #: The client of the task left.
_since_s: float | None = None  # time at which its request was read; None: there is no task


def _nothing(models: Registry) -> None:
    pass


def _start(settings: Settings) -> Handler:
    signal.signal(_LEFT, _end_task)
    signal.signal(signal.SIGALRM, _end_task)
    return partial(_handle, ModelsFile(settings.models))


def _end_task(number: int, _: object) -> None:
    if _since_s is not None:
        raise ClientDisconnect if number == _LEFT else DeadlinePassed("the preparation took longer")


def end_after(timeout_ms: int) -> None:
    """Ends the preparation of a call once its deadline has passed, where a child process makes it.

    It raises DeadlinePassed at any later point of the task.
    """
    if _since_s is not None:
        left_s = _since_s + timeout_ms / 1000 - clock.monotonic()
        signal.setitimer(signal.ITIMER_REAL, max(left_s, 1e-6))


def _handle(models: ModelsFile, task: Any, _: IO[bytes] | None) -> Any:
    """Returns what the task returns or, as a value, what it raises."""
    global _since_s
    registered, since_s, tenant, prepare, args, kwargs = task
    models.poll()
    models.adopt(registered)
    try:
        _since_s = since_s
        return prepare(models.models.of_tenant(tenant), *args, **kwargs)
    except (MillraceError, ClientDisconnect) as error:
        return error
    except Exception as error:
        return RuntimeError("".join(traceback.format_exception(error)))
    finally:
        _since_s = None
        signal.setitimer(signal.ITIMER_REAL, 0)
