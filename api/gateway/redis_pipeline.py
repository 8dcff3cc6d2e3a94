"""One connection to Redis for commands that come thick and fast.

What is sent in one turn of the loop leaves in one write, nobody waits for another's answer, and an
answer is handed to a callback: a tenth of what redis-py takes for a command. redis-py connects, as
the URL says (TLS, sockets, passwords); then the transport is ours.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha1
from typing import Any, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError,
    InvalidResponse,
    NoScriptError,
    RedisError,
    ResponseError,
)

from jobs.telemetry.metrics import record

_BLOCKING = {"BLPOP"}
"""Commands whose time is not Redis'."""

Then = Callable[[Any], None]
"""Gets the answer, or the RedisError in its place."""


class RedisPipeline(asyncio.Protocol):
    """Connects when the first command comes, and again when the connection was lost; commands that
    have no answer then are answered with ConnectionError. timeout_s: for a connection to come
    about, and for the next answer."""

    def __init__(self, url: str, timeout_s: float) -> None:
        pool: ConnectionPool = ConnectionPool.from_url(
            url, protocol=2, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
        )
        self._connection = pool.make_connection()  # type: ignore[no-untyped-call]
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []
        # In the order of their commands; with when each was sent, 0 where that doesn't matter.
        self._awaited: deque[tuple[Then, float]] = deque()
        self._heard_s = 0.0  # when there was an answer, or none to wait for
        self._timer: asyncio.TimerHandle | None = None

    def send(self, then: Then, *command: Any) -> None:
        """Queues a command: strings, bytes and numbers."""
        loop, packed = asyncio.get_running_loop(), hiredis.pack_command(command)
        now_s = loop.time()
        if not self._awaited:
            self._heard_s = now_s
            self._timer = self._timer or loop.call_later(self._timeout_s, self._check)
        self._awaited.append((then, 0.0 if command[0] in _BLOCKING else now_s))
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent.append(packed)

    def ask(self, *command: Any) -> "asyncio.Future[Any]":
        """The answer, or a RedisError."""
        answer = asyncio.get_running_loop().create_future()
        self.send(partial(_settle, answer), *command)
        return answer

    async def close(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._connecting:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._transport:
            self._transport.abort()  # TLS would say goodbye, and wait for an answer to that
        await self._connection.disconnect(nowait=True)
        self._fail(ConnectionError("the connection was closed"))

    def _check(self) -> None:
        """Gives a connection up that has fallen silent."""
        loop = asyncio.get_running_loop()
        silent_s = loop.time() - self._heard_s
        if self._transport and self._awaited and silent_s >= self._timeout_s:
            self._transport.abort()
        left_s = max(self._timeout_s - silent_s, self._timeout_s / 10)
        self._timer = loop.call_later(left_s, self._check) if self._awaited else None

    def _flush(self) -> None:
        if self._transport:
            self._transport.write(b"".join(self._unsent))
            self._unsent.clear()
        elif self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connection.disconnect(nowait=True)
                await self._connection.connect()
            writer = cast(asyncio.StreamWriter, self._connection._writer)
            if writer.transport.is_closing():  # then nobody will say that it was lost
                raise ConnectionError("the connection to Redis was lost at once")
        except (RedisError, OSError, TimeoutError) as error:
            self._fail(error if isinstance(error, RedisError) else ConnectionError(str(error)))
            return
        finally:
            self._connecting = None
        self._transport = cast(asyncio.Transport, writer.transport)
        self._replies = hiredis.Reader(protocolError=InvalidResponse, replyError=_reply_error)
        self._transport.set_protocol(self)
        self._flush()

    # -- asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        self._replies.feed(data)
        while (answer := self._replies.gets()) is not False:
            then, since_s = self._awaited.popleft()
            if since_s:
                record.redis_answered(self._heard_s - since_s)
            if isinstance(answer, RedisError) and not isinstance(answer, NoScriptError):
                record.redis_error()
            then(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(ConnectionError(f"the connection to Redis was lost: {error or 'it ended'}"))

    def _fail(self, error: RedisError) -> None:
        """Answers everybody, those too who come later but were queued by now."""
        self._unsent.clear()
        awaited, self._awaited = self._awaited, deque()
        for then, _ in awaited:
            record.redis_error()
            then(error)


class PipelineScript:
    """A Lua script on a pipe."""

    def __init__(self, pipe: RedisPipeline, source: str) -> None:
        self._pipe, self._source = pipe, source
        self._sha = sha1(source.encode()).hexdigest()

    def send(self, then: Then, keys: Sequence[str], arguments: Sequence[Any]) -> None:
        def unless_unknown(answer: Any) -> None:
            if isinstance(answer, NoScriptError):
                self._pipe.send(then, "EVAL", self._source, len(keys), *keys, *arguments)
            else:
                then(answer)

        self._pipe.send(unless_unknown, "EVALSHA", self._sha, len(keys), *keys, *arguments)

    def ask(self, keys: Sequence[str], arguments: Sequence[Any]) -> "asyncio.Future[Any]":
        """What it returns, or a RedisError."""
        answer = asyncio.get_running_loop().create_future()
        self.send(partial(_settle, answer), keys, arguments)
        return answer


def _settle(answer: "asyncio.Future[Any]", found: Any) -> None:
    if answer.done():
        return
    if isinstance(found, RedisError):
        answer.set_exception(found)
    else:
        answer.set_result(found)


def _reply_error(message: str) -> RedisError:
    return (NoScriptError if message.startswith("NOSCRIPT") else ResponseError)(message)
