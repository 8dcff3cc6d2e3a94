"""Invalidation of cached credentials by notifications of the database."""

import asyncio
import logging
from collections.abc import Callable

import psycopg
from psycopg import AsyncConnection, sql

from jobs.store import db

_log = logging.getLogger(__name__)
_AGAIN_S = 1.0
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
            async with await AsyncConnection.connect(
                db.plain_url(url), autocommit=True, **db.TCP_OPTIONS
            ) as connection:
                await connection.execute(_LISTEN)
                warned = False
                on_change(_ALL)
                async for notice in connection.notifies():
                    on_change(notice.payload)
        except (psycopg.Error, OSError) as error:
            if not warned:
                _log.warning(
                    "can't listen for revoked keys; they stay valid for seconds: %s", error
                )
            warned = True
        await asyncio.sleep(_AGAIN_S)
