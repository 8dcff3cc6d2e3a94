"""Invalidation of cached credentials by notifications of the database."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable

import psycopg
from psycopg import AsyncConnection, Notify, sql
from psycopg.abc import Query

from jobs.store import db
from jobs.store.connections import hosts

_log = logging.getLogger(__name__)
_AGAIN_S = 1.0
_QUIET_S, _ANSWER_S = 10.0, 5.0  # after a silence of the first, the server has the second to answer
_ALL = ""
_LISTEN = sql.SQL("LISTEN {}").format(sql.Identifier(db.KEYS_CHANNEL))


async def listen(url: str, on_change: Callable[[str], None]) -> None:
    """Calls `on_change` with the tenant of each change, until cancelled.

    Calls it with "" (all tenants) after each (re)connect, since notifications may have been
    missed.
    """
    warned = False
    while True:
        try:
            options = hosts.in_turn(db.plain_url(url), db.TCP_OPTIONS)
            async with await AsyncConnection.connect("", autocommit=True, **options) as connection:
                await _execute(connection, _LISTEN)
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


async def _execute(connection: AsyncConnection, statement: Query) -> None:
    """Runs a statement. Raises TimeoutError where the server is frozen, which sends nothing."""
    async with asyncio.timeout(_ANSWER_S):
        await connection.execute(statement)


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
                await _execute(connection, "SELECT 1")
            arrived.clear()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
