"""Ingest of large bodies in child processes: calls and small jobs of the same api don't wait for
their parsing."""

import pickle
import traceback
from collections.abc import Callable
from functools import partial
from typing import IO, Any, Concatenate, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from api.services.resources import Resources
from api.services.turns import TenantTurns
from jobs.blobs.payloads import Payloads
from jobs.errors import MillraceError, TooLarge, Unavailable
from jobs.models.watcher import ModelsFile
from jobs.processes.child import ChildKind, Handler
from jobs.processes.pool import OutOfMemory, ProcessPool
from jobs.settings import Settings
from jobs.store import db
from jobs.telemetry.tracing.context import CURRENT

_PROCESSES, _OF_TENANT = 3, 2  # of one api, and of one tenant at a time
_NICE = 5  # calls and small jobs go first

P = ParamSpec("P")
T = TypeVar("T")
Take = Callable[Concatenate[Resources, IO[bytes], P], T]
"""Processes a body; a function of a module."""


class IngestPool:
    """Processes for ingest of one api process: each takes one body at a time, tenants in turn.

    models: what the registry holds is sent along with each body.
    """

    def __init__(self, settings: Settings, models: ModelsFile) -> None:
        self._models = models
        self._turns = TenantTurns(_PROCESSES, _OF_TENANT)
        self._pool = ProcessPool(ChildKind("ingest", _start, _NICE), settings)

    async def run(
        self, tenant: str, take: Take[P, T], body: IO[bytes], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Returns what `take` returns, or raises what it raises, in a child process; arguments
        and result are pickled.

        Raises Unavailable where that process was killed, Overloaded where too many bodies of
        the tenant wait, and TooLarge where it needed more memory
        than it may have.
        """
        async with self._turns.place(tenant):
            task = self._models.registered, CURRENT.get(), take, args, kwargs
            result = await run_in_threadpool(self._run, body, task)
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Ends the processes, busy or not."""
        self._pool.close()

    def _run(self, body: IO[bytes], task: Any) -> Any:
        try:
            with self._pool.child() as child:
                child.send(task, body)
                return child.result()
        except OutOfMemory as error:
            message = f"reading the body {error}: send the items as NDJSON, or split the body"
            raise TooLarge(message) from error
        except (EOFError, OSError) as error:
            message = "the process that took the body in was killed; send it once more"
            raise Unavailable(message, retry_after_s=1) from error


def _start(settings: Settings) -> Handler:
    database = db.connect(settings.database_url, pool_size=1, role=db.API)
    payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)
    return partial(_handle, Resources(settings, ModelsFile(settings.models), database, payloads))


def _handle(resources: Resources, task: Any, body: IO[bytes] | None) -> Any:
    """Returns what the task returns or, as a value, what it raises."""
    assert body
    registered, trace, take, args, kwargs = task
    CURRENT.set(trace)
    body.seek(0)
    resources.models_file.poll()
    resources.models_file.adopt(registered)
    try:
        return take(resources, body, *args, **kwargs)
    except Exception as error:
        if not isinstance(error, MillraceError):
            error.add_note(traceback.format_exc())  # tracebacks aren't pickled
        return _portable(error)


def _portable(error: Exception) -> Exception:
    """Returns the exception or, where it can't be pickled, one with the same text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
