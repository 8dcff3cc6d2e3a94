# Generated from millrace.aio by ops/generate_sync_client.py; change it there.
"""Conversations with models that generate: whole answers, and streams that are resumed."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from millrace import clock
from millrace.clock import Deadline
from millrace.errors import APIConnectionError, APIError, StreamError
from millrace.objects import Chat, ChatChunk
from millrace.sync.transport import Transport, line_blocks
from millrace.wire import Events, Request, idempotency

_PATH = "/v1/chat/completions"
_RESUME_WITHIN_S = 60
_CANCEL_S = 5.0
_LAST_EVENT = "[DONE]"
_MOVES_ON = "api_stopping"  # code of an error that ends a stream at one api alone

Messages = Sequence[Mapping[str, Any]]


class Chats:
    """Conversations of an api, as OpenAI's chat completions."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
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
        return Chat((self._transport.send(request, Deadline(timeout_s))).json())

    def stream(
        self,
        model: str,
        messages: Messages,
        *,
        on_retry: Callable[[APIError], None] = lambda error: None,
        **fields: Any,
    ) -> Iterator[ChatChunk]:
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
                    for id, data in self._events(body, position):
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
                    clock.sleep(pause_s)
        finally:
            if position and not ended:
                self._cancel(position.partition("/")[0])

    def _events(self, body: Mapping[str, Any], position: str) -> Iterator[tuple[str, str]]:
        """Yields id and data of the events after a position; "": from the start."""
        headers = {"X-Millrace-Resume-Within": str(_RESUME_WITHIN_S)}
        if position:
            headers["Last-Event-ID"] = position
        events = Events()
        request = Request("POST", _PATH, json=body, headers=headers, repeatable=bool(position))
        with self._transport.open(request) as response:
            if response.status_code == 204:  # there is nothing after it
                yield position, _LAST_EVENT
            for block in line_blocks(response):
                for line in block:
                    if event := events.feed(line.decode()):
                        yield event

    def _cancel(self, id: str) -> None:
        """Ends a call that may run; it may have ended, or nobody may answer."""
        with suppress(APIError):
            self._transport.send(Request("POST", f"/calls/{id}/cancel"), Deadline(_CANCEL_S))
