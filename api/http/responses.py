"""JSON responses, encoded by orjson, and responses that are sent in one piece."""

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from api.http import bodies


class JsonBytes(Response):
    """Response whose body is JSON already. Starlette's own takes ten times as long to be made, as
    long as a call takes to be parsed and checked.

    headers: names and values in Latin-1; neither Content-Length nor Content-Type.
    """

    def __init__(self, body: bytes, headers: Mapping[str, str], status: int = 200) -> None:
        self.status_code, self.body, self.background = status, body, None
        length = b"content-length", b"%d" % len(body)
        own = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.raw_headers = [length, _JSON_TYPE, *own]


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Returns a response of this value as JSON."""
    return JsonBytes(orjson.dumps(value), headers or {}, status)


_JSON_TYPE = b"content-type", bodies.JSON.encode()
_LONG_BYTES = 65_536  # a longer body is not copied behind its head
_Headers = list[tuple[bytes, bytes]]
_last_defaults: tuple[_Headers, bytes] = ([], b"")


async def send_whole(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends a response whose body is known; straight to uvicorn's connection where nothing is
    wrapped around it: ASGI's two messages take longer than the rest of a response."""
    cycle = getattr(send, "__self__", None)
    if (
        not isinstance(cycle, RequestResponseCycle)
        or cycle.response_started
        or cycle.flow.write_paused
        or any(HEADER_VALUE_RE.search(value) for _, value in response.raw_headers)
    ):
        await response(scope, receive, send)
    elif not cycle.disconnected:
        _write(cycle, response)


def _write(cycle: RequestResponseCycle, response: Response) -> None:
    """Does what uvicorn does with both messages of a response with a Content-Length."""
    parts = [
        STATUS_LINE[response.status_code],
        default_head(cycle.default_headers),
        encode_head(response.raw_headers),
        b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n",
    ]
    body = bytes(response.body)
    if len(body) <= _LONG_BYTES:
        parts.append(body)
    cycle.waiting_for_100_continue = False
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"".join(parts))
    if len(body) > _LONG_BYTES:
        cycle.transport.write(body)
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()


def encode_head(headers: _Headers) -> bytes:
    """Encodes headers as they are sent, a line each."""
    return b"".join([name + b": " + value + b"\r\n" for name, value in headers])


def default_head(headers: _Headers) -> bytes:
    """Encodes the headers of every response; they change once a second."""
    global _last_defaults
    known, encoded = _last_defaults
    if known is not headers:
        encoded = encode_head(headers)
        _last_defaults = headers, encoded
    return encoded
