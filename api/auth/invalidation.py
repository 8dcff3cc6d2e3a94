"""Hears from the database that what credentials stand for has changed."""

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


async def listen(url: str, heard: Callable[[str], None]) -> None:
    """Calls `heard` with the tenant that a change is about; with "" for all of them, when it began
    to listen and may have missed some. Ends when it is cancelled."""
    told = False
    while True:
        try:
            async with await AsyncConnection.connect(
                db.plain_url(url), autocommit=True, **db.TCP_OPTIONS
            ) as connection:
                await connection.execute(_LISTEN)
                told = False
                heard(_ALL)
                async for notice in connection.notifies():
                    heard(notice.payload)
        except (psycopg.Error, OSError) as error:
            if not told:
                _log.warning("no word of revoked keys, they count for seconds: %s", error)
            told = True
        await asyncio.sleep(_AGAIN_S)
