"""Reader of an api process's replies: one list in Redis or, on a cluster, one in the slot of each
model."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from api import background
from api.gateway.cluster.pipeline import open_pipeline
from api.gateway.redis_pipeline import Pipeline

_log = logging.getLogger(__name__)
_BLOCK_S = 5
_ASKED = 32  # messages that are asked for ahead
_SILENT_S = 10.0
_RETRY_S = 0.2


class ReplyReader:
    """Passes messages to `on_message`, by one connection for each list, which BLPOP blocks.

    Many messages are asked for ahead. A loop that is behind, with turns of 50 ms, would ask for
    one every fourth turn, five a second: replies came seconds late, though the loop had time for
    each of them."""

    def __init__(self, redis_url: str, on_message: Callable[[bytes], None]) -> None:
        self._redis_url, self._on_message = redis_url, on_message
        self._reading: dict[str, asyncio.Task[None]] = {}  # by model; "": of all

    def read(self, model: str, key: str) -> None:
        """Reads a list from now on, unless it is read. model: whose replies it has; "": all."""
        if model not in self._reading:
            self._reading[model] = background.keep("replies", partial(self._read, key))

    @property
    def models(self) -> set[str]:
        """Models whose lists are read."""
        return set(self._reading)

    def forget(self, model: str) -> None:
        """Reads the list of a model no more."""
        self._reading.pop(model).cancel()

    async def stop(self) -> None:
        """Reads nothing more."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, key: str) -> None:
        pipe = open_pipeline(self._redis_url, _SILENT_S)
        try:
            await self._pass_on(pipe, key)
        finally:
            await pipe.close()

    async def _pass_on(self, pipe: Pipeline, key: str) -> None:
        asked = deque[asyncio.Future[Any]]()
        try:
            while True:
                while len(asked) < _ASKED:
                    asked.append(pipe.ask("BLPOP", key, _BLOCK_S))
                try:
                    reply = await asked.popleft()
                except RedisError as error:
                    _log.warning("can't read replies: %s", error)
                    await asyncio.gather(*asked, return_exceptions=True)  # lost like the first
                    asked.clear()
                    await asyncio.sleep(_RETRY_S)
                else:
                    self._pass(reply)
        finally:
            for future in asked:
                future.cancel()

    def _pass(self, reply: Any) -> None:
        try:
            self._on_message(reply[1] if reply else b"[]")
        except Exception:  # nobody else reads replies: the next ones are awaited too
            _log.exception("a message of replies can't be read")
