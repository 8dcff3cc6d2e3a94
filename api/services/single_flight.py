"""Single-flight queries with a timeout, for a database that may be stuck."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

T = TypeVar("T")
_TIMEOUT_S = 1.0


class SingleFlight:
    """Runs one query of a kind at a time; concurrent callers share its result, so that stuck
    queries hold one thread per kind."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def run(self, kind: Hashable, query: Callable[[], T]) -> T | None:
        """Returns the result, or None after a second without one. Raises what `query` raises."""
        task: asyncio.Task[T] | None = self._running.get(kind)
        if task is None:
            task = self._running[kind] = asyncio.create_task(run_in_threadpool(query))
            task.add_done_callback(lambda _: self._running.pop(kind))
        done, _ = await asyncio.wait({task}, timeout=_TIMEOUT_S)
        return task.result() if done else None
