"""Invalidation of cached credentials by notifications of the database."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection, Notify, OperationalError, errors, sql

from jobs.store import db
from jobs.store.connections import hosts

_log = logging.getLogger(__name__)
_AGAIN_S = 1.0
_QUIET_S, _ANSWER_S = 2.0, 5.0  # after a silence of the first, the server has the second to answer
_ALL = ""
_LISTEN = sql.SQL("LISTEN {}").format(sql.Identifier(db.KEYS_CHANNEL))


class _ListeningConnection(AsyncConnection[Any]):
    """Connection that is closed where the server has not answered a statement in time.

    The deadline is psycopg's own: a task that is cancelled in a statement, as by asyncio.timeout,
    asks the server to cancel it, and waits for ten seconds more where that is frozen.
    """

    async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Waits for the server. Raises OperationalError."""
        if timeout is not None:  # of a wait for notifications, which may pass without one
            return await super().wait(gen, interval, timeout)
        try:
            return await super().wait(gen, interval, _ANSWER_S)
        except errors._WaitTimeout as error:
            hosts.avoid(self.info)
            self.pgconn.finish()
            late = f"PostgreSQL has not answered for {_ANSWER_S:g} s; the connection was closed"
            raise OperationalError(late) from error


async def listen(url: str, on_change: Callable[[str], None]) -> None:
    """Calls `on_change` with the tenant of each change, until cancelled.

    Calls it with "" (all tenants) after each (re)connect, since notifications may have been
    missed.
    """
    warned = False
    while True:
        try:
            options = hosts.in_turn(db.plain_url(url), db.TCP_OPTIONS)
            async with await _ListeningConnection.connect(
                "", autocommit=True, **options
            ) as connection:
                hosts.prefer(connection.info)
                await connection.execute(_LISTEN)
                warned = False
                on_change(_ALL)
                async for notice in _notifications(connection):
                    on_change(notice.payload)
        except (psycopg.Error, OSError) as error:
            if not warned:
                _log.warning(
                    "can't listen for revoked keys; they stay valid for seconds: %s", error
                )
            warned = True
        await asyncio.sleep(_AGAIN_S)


async def _notifications(connection: AsyncConnection) -> AsyncIterator[Notify]:
    """Yields notifications as they arrive; psycopg's own wait wakes up ten times a second."""
    arrived, loop = asyncio.Event(), asyncio.get_running_loop()
    fd = os.dup(connection.fileno())  # psycopg waits on the other one
    loop.add_reader(fd, arrived.set)
    try:
        while True:
            async for notice in connection.notifies(timeout=0):
                yield notice
            try:
                async with asyncio.timeout(_QUIET_S):
                    await arrived.wait()
            except TimeoutError:
                await connection.execute("SELECT 1")
            arrived.clear()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
