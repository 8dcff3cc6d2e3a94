"""Preparation of large calls in child processes: a body with many values, or texts to tokenize,
holds up no other request of this process."""

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from api.services.turns import TenantTurns
from jobs.errors import MillraceError, TooLarge, Unavailable
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.processes.child import ChildKind, Handler
from jobs.processes.pool import OutOfMemory, ProcessPool
from jobs.settings import Settings

_PROCESSES, _OF_TENANT = 3, 2  # of one api, and of one tenant at a time
_FIRST_AFTER_S = 3.0  # so that it takes no CPU from the start of the platform

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
            self._run(("", _nothing, (), {}))

    async def run(
        self,
        tenant: str,
        prepare: Callable[Concatenate[Registry, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Returns what `prepare`, a function of a module, returns, or raises what it raises, in a
        child process; arguments and result are pickled. Raises Unavailable where that process was
        killed."""
        async with self._turns.place(tenant):
            result = await run_in_threadpool(self._run, (tenant, prepare, args, kwargs))
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Ends the processes, busy or not."""
        self._starter.cancel()
        self._pool.close()

    def _run(self, task: Any) -> Any:
        try:
            with self._pool.child() as child:
                child.send((self._models.registered, *task))
                return child.result()
        except OutOfMemory as error:
            raise TooLarge(f"reading the body {error}: make it smaller") from error
        except (EOFError, OSError) as error:
            message = "the process that prepared the call was killed; send it once more"
            raise Unavailable(message, retry_after_s=1) from error


def _nothing(models: Registry) -> None:
    pass


def _start(settings: Settings) -> Handler:
    return partial(_handle, ModelsFile(settings.models))


def _handle(models: ModelsFile, task: Any, _: IO[bytes] | None) -> Any:
    """Returns what the task returns or, as a value, what it raises."""
    registered, tenant, prepare, args, kwargs = task
    models.poll()
    models.adopt(registered)
    try:
        return prepare(models.models.of_tenant(tenant), *args, **kwargs)
    except MillraceError as error:
        return error
    except Exception as error:
        return RuntimeError("".join(traceback.format_exception(error)))
