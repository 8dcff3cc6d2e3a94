"""Questions that may go unanswered for long: the database may be what is the matter."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from fastapi.concurrency import run_in_threadpool

T = TypeVar("T")
_PATIENCE_S = 1.0


class SingleFlight:
    """One question of a kind at a time: whoever asks meanwhile waits for the same answer, so those
    that never come take no more than a thread each."""

    def __init__(self) -> None:
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    async def ask(self, kind: Hashable, ask: Callable[[], T]) -> T | None:
        """None: no answer within a second. Raises what `ask` raises."""
        task: asyncio.Task[T] | None = self._asked.get(kind)
        if task is None:
            task = self._asked[kind] = asyncio.create_task(run_in_threadpool(ask))
            task.add_done_callback(lambda _: self._asked.pop(kind))
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
        return task.result() if done else None
