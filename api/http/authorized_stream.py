"""Streamed response that is broken off once its request may no longer read it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.http.connections import connection

CHECK_S = 2.0  #: Time between two checks of a stream's credential.

_log = logging.getLogger(__name__)


class AuthorizedStream(StreamingResponse):
    """Response whose permission is checked every CHECK_S while it is sent.

    `may_continue` returns False once the credential has ended. The connection is then closed
    without the response's end, so that no client takes what it got for all: also where the client
    doesn't read, or the next piece takes long.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        may_continue: Callable[[], Awaitable[bool]],
        **options: Any,
    ) -> None:
        super().__init__(pieces, **options)
        self._pieces = pieces
        self._may_continue = may_continue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        sending = asyncio.ensure_future(super().__call__(scope, receive, send))
        ended = asyncio.ensure_future(self._until_it_ends())
        try:
            await asyncio.wait((sending, ended), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                _log.info("a response was broken off: its credential has ended")
                connection.break_off(scope)
        finally:
            sending.cancel()
            ended.cancel()
            await asyncio.wait((sending, ended))
            await self._pieces.aclose()
        if not sending.cancelled():
            sending.result()

    async def _until_it_ends(self) -> None:
        await asyncio.sleep(CHECK_S)  # it was checked just now
        while await self._may_continue():
            await asyncio.sleep(CHECK_S)
