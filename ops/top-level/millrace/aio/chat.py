"""Conversations with models that generate: whole answers, and streams that are resumed."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from millrace import clock
from millrace.aio.transport import AsyncTransport, line_blocks
from millrace.clock import Deadline
from millrace.errors import APIConnectionError, APIError, StreamError
from millrace.objects import Chat, ChatChunk
from millrace.wire import Events, Request, idempotency

_PATH = "/v1/chat/completions"
_RESUME_WITHIN_S = 60
_CANCEL_S = 5.0
_LAST_EVENT = "[DONE]"
_MOVES_ON = "api_stopping"  # code of an error that ends a stream at one api alone

Messages = Sequence[Mapping[str, Any]]


class AsyncChats:
    """Conversations of an api, as OpenAI's chat completions."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        model: str,
        messages: Messages,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Chat:
        """Returns the answer to a conversation. Raises APIError.

        messages: each with `role` and `content`; fields: of the request, such as max_tokens.
        """
        body = {"model": model, "messages": messages, **fields}
        request = Request("POST", _PATH, json=body, headers=idempotency(idempotency_key))
        return Chat((await self._transport.send(request, Deadline(timeout_s))).json())

    async def stream(
        self,
        model: str,
        messages: Messages,
        *,
        on_retry: Callable[[APIError], None] = lambda error: None,
        **fields: Any,
    ) -> AsyncIterator[ChatChunk]:
        """Yields the answer to a conversation in pieces as they are generated; goes on after the
        last one where the connection or the api is lost.

        on_retry: called before each retry. Leaving the iterator ends the generation. Raises
        APIError, StreamError.
        """
        body = {"model": model, "messages": messages, "stream": True, **fields}
        retries = self._transport.retries(Deadline(), repeatable=False)
        position, ended = "", False
        try:
            while not ended:
                before = position
                try:
                    async for id, data in self._events(body, position):
                        chunk = {} if data == _LAST_EVENT else json.loads(data)
                        error = chunk.get("error")
                        position = id
                        ended = not chunk or bool(error and error.get("code") != _MOVES_ON)
                        if ended and error:
                            raise StreamError(error)
                        if chunk and not error:
                            yield ChatChunk(chunk)
                    if not ended and position == before:
                        raise APIConnectionError("the stream ended early")
                except APIError as error:
                    if position != before:
                        retries = self._transport.retries(Deadline(), patience_s=_RESUME_WITHIN_S)
                    pause_s = retries.pause_s(error)
                    on_retry(error)
                    await clock.async_sleep(pause_s)
        finally:
            if position and not ended:
                await self._cancel(position.partition("/")[0])

    async def _events(
        self, body: Mapping[str, Any], position: str
    ) -> AsyncIterator[tuple[str, str]]:
        """Yields id and data of the events after a position; "": from the start."""
        headers = {"X-Millrace-Resume-Within": str(_RESUME_WITHIN_S)}
        if position:
            headers["Last-Event-ID"] = position
        events = Events()
        request = Request("POST", _PATH, json=body, headers=headers, repeatable=bool(position))
        async with self._transport.open(request) as response:
            if response.status_code == 204:  # there is nothing after it
                yield position, _LAST_EVENT
            async for block in line_blocks(response):
                for line in block:
                    if event := events.feed(line.decode()):
                        yield event

    async def _cancel(self, id: str) -> None:
        """Ends a call that may run; it may have ended, or nobody may answer."""
        with suppress(APIError):
            await self._transport.send(Request("POST", f"/calls/{id}/cancel"), Deadline(_CANCEL_S))
