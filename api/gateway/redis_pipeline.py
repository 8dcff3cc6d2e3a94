"""Pipelined connection to Redis for many small commands.

Commands of one turn of the event loop leave in one write, none waits for another's reply, and a
reply goes to a callback: a tenth of redis-py's cost per command. redis-py connects, by the URL
(TLS, sockets, passwords, Sentinels); then the transport is ours.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha1
from typing import Any, Protocol, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError,
    InvalidResponse,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from api import background
from jobs.calls.clients.sentinel import async_master_pool, is_sentinel
from jobs.calls.clients.single import READONLY
from jobs.telemetry.metrics import record

_log = logging.getLogger(__name__)
_BLOCKING = {"BLPOP"}  #: Commands that block by design; their time is no measure of Redis.

ReplyCallback = Callable[[Any], None]  #: Gets the reply, or the RedisError in its place.


class Pipeline(Protocol):
    """Commands to a Redis, or to the nodes of a Redis Cluster (api/gateway/cluster/pipeline.py)."""

    def send(self, callback: ReplyCallback, *command: Any) -> None:
        """Queues a command: strings, bytes and numbers."""
        ...

    def ask(self, *command: Any) -> "asyncio.Future[Any]":
        """Queues a command. Returns a future of its reply, or of a RedisError."""
        ...

    def ask_at(self, key: str, *command: Any) -> "asyncio.Future[Any]":
        """Queues a command for the node of a key, on that node's clock."""
        ...

    async def ping(self) -> bool:
        """Returns True once Redis has answered. Raises RedisError."""
        ...

    async def close(self) -> None:
        """Closes the connections; commands in flight get ConnectionError."""
        ...


class RedisPipeline(asyncio.Protocol):
    """Connects with the first command, and again after a connection was lost; commands without a
    reply then get ConnectionError.

    `timeout_s`: to connect, and for the next reply.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._pool = _pool(url, timeout_s)  # asked by its connection, where it is one of Sentinels
        self._connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []
        # In the order of commands; the time is 0 for commands that block by design.
        self._awaited: deque[tuple[ReplyCallback, float]] = deque()
        self._last_reply_s = 0.0  # last reply, or first command after idling
        self._timer: asyncio.TimerHandle | None = None
        self._check_s = 0.0  # time at which the timer is due

    def send(self, callback: ReplyCallback, *command: Any) -> None:
        """Queues a command: strings, bytes and numbers."""
        loop, packed = asyncio.get_running_loop(), hiredis.pack_command(command)
        now_s = loop.time()
        if not self._awaited:
            self._last_reply_s = now_s
            if not self._timer:
                self._check_in(self._timeout_s)
        self._awaited.append((callback, 0.0 if command[0] in _BLOCKING else now_s))
        if not self._unsent:
            loop.call_soon(self._flush)
        self._unsent.append(packed)

    def ask(self, *command: Any) -> "asyncio.Future[Any]":
        """Queues a command. Returns a future of its reply, or of a RedisError."""
        future = asyncio.get_running_loop().create_future()
        self.send(partial(settle, future), *command)
        return future

    def ask_at(self, key: str, *command: Any) -> "asyncio.Future[Any]":
        """Implements `Pipeline.ask_at`: there is one node."""
        return self.ask(*command)

    async def ping(self) -> bool:
        """Implements `Pipeline.ping`."""
        return bool(await self.ask("PING"))

    async def close(self) -> None:
        """Closes the connection; commands in flight get ConnectionError."""
        if self._timer:
            self._timer.cancel()
        if self._connecting:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._transport:
            self._transport.abort()  # a TLS shutdown would wait for its peer
        await self._connection.disconnect(nowait=True)
        if isinstance(self._pool, SentinelConnectionPool):
            await self._pool.sentinel_manager.aclose()
        self._fail(ConnectionError("the connection was closed"))

    def _check(self) -> None:
        """Aborts a connection that has fallen silent; not where this loop is behind, and may have
        replies to read."""
        now_s, again_s = asyncio.get_running_loop().time(), self._timeout_s / 10
        silent_s = now_s - self._last_reply_s
        behind = now_s - self._check_s > again_s
        if self._transport and self._awaited and silent_s >= self._timeout_s and not behind:
            self._transport.abort()
        self._timer = None
        if self._awaited:
            self._check_in(max(self._timeout_s - silent_s, again_s))

    def _check_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._check_s = loop.time() + seconds
        self._timer = loop.call_later(seconds, self._check)

    def _flush(self) -> None:
        if self._transport:
            data = b"".join(self._unsent)
            self._unsent.clear()
            try:
                self._transport.write(data)
            except Exception as error:  # RuntimeError of uvloop where the peer has reset it
                self._drop(error)
        elif self._connecting is None:
            self._connecting = background.spawn("connect", self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connection.disconnect(nowait=True)
                await self._connection.connect()
            writer = cast(asyncio.StreamWriter, self._connection._writer)
            transport = cast(asyncio.Transport, writer.transport)
            if transport.is_closing():  # then nobody will say that it was lost
                raise ConnectionError("the connection to Redis was lost at once")
            transport.set_protocol(self)
        except Exception as error:  # whatever it is: commands that wait are told, and sent no more
            self._fail(as_redis_error(error))
            return
        finally:
            self._connecting = None
        self._transport = transport
        self._replies = hiredis.Reader(protocolError=InvalidResponse, replyError=_reply_error)
        self._flush()

    # -- asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Passes replies to their callbacks, in order."""
        self._last_reply_s = asyncio.get_running_loop().time()
        self._replies.feed(data)
        while (reply := self._replies.gets()) is not False:
            callback, since_s = self._awaited.popleft()
            if since_s:
                record.redis_answered(self._last_reply_s - since_s)
            if isinstance(reply, RedisError) and not isinstance(reply, NoScriptError):
                if isinstance(reply, ReadOnlyError) and self._transport:
                    self._awaited.appendleft((callback, since_s))
                    self._drop(ConnectionError("Redis is a replica now"))
                    return
                record.redis_error()
            callback(reply)

    def connection_lost(self, error: Exception | None) -> None:
        """Fails all commands without a reply."""
        self._transport = None
        self._fail(ConnectionError(f"the connection to Redis was lost: {error or 'it ended'}"))

    def _drop(self, error: Exception) -> None:
        """Ends a connection that can't be used."""
        assert self._transport
        self._transport.set_protocol(asyncio.Protocol())  # its end must not end the next one
        self._transport.abort()
        self._transport = None
        self._fail(as_redis_error(error))

    def _fail(self, error: RedisError) -> None:
        """Fails all commands, including those that were queued but not sent."""
        self._unsent.clear()
        awaited, self._awaited = self._awaited, deque()
        for callback, _ in awaited:
            record.redis_error()
            try:
                callback(error)
            except Exception:  # the others are told too
                _log.exception("the callback of a Redis command failed")


class PipelineScript:
    """Lua script, sent by its hash and loaded where Redis doesn't know it."""

    def __init__(self, pipe: Pipeline, source: str) -> None:
        self._pipe, self._source = pipe, source
        self._sha = sha1(source.encode()).hexdigest()

    def send(self, callback: ReplyCallback, keys: Sequence[str], arguments: Sequence[Any]) -> None:
        """Queues a run of the script."""

        def unless_unknown(reply: Any) -> None:
            if isinstance(reply, NoScriptError):
                self._pipe.send(callback, "EVAL", self._source, len(keys), *keys, *arguments)
            else:
                callback(reply)

        self._pipe.send(unless_unknown, "EVALSHA", self._sha, len(keys), *keys, *arguments)

    def ask(self, keys: Sequence[str], arguments: Sequence[Any]) -> "asyncio.Future[Any]":
        """Queues a run. Returns a future of its reply, or of a RedisError."""
        future = asyncio.get_running_loop().create_future()
        self.send(partial(settle, future), keys, arguments)
        return future


def settle(future: "asyncio.Future[Any]", reply: Any) -> None:
    """Ends a future with a reply, or with the RedisError in its place."""
    if future.done():
        return
    if isinstance(reply, RedisError):
        future.set_exception(reply)
    else:
        future.set_result(reply)


def as_redis_error(error: Exception) -> RedisError:
    """Returns the error as one that callers of a Pipeline expect."""
    if isinstance(error, RedisError):
        return error
    return ConnectionError(f"the connection to Redis failed: {error or type(error).__name__}")


def _reply_error(message: str) -> RedisError:
    if READONLY in message:
        return ReadOnlyError(message)
    return (NoScriptError if message.startswith("NOSCRIPT") else ResponseError)(message)


def _pool(url: str, timeout_s: float) -> ConnectionPool:
    if is_sentinel(url):
        return async_master_pool(url, timeout_s)
    retry = Retry(NoBackoff(), 0)
    return ConnectionPool.from_url(url, protocol=2, socket_connect_timeout=timeout_s, retry=retry)
