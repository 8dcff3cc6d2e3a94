"""HTTP connection with bounds: uvicorn's protocol, for clients that may be slow, broken or
hostile.

A head that is too long, a request that trickles, a body that goes on after its response, a
response that nobody reads: each ends its connection. A well-behaved packet costs two additions and
a look at the clock.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from starlette.types import Message, Receive, Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from api.http.connections.request_turns import RequestTurns
from api.http.errors import problem_object
from api.http.request_id import new_request_id
from api.http.responses import default_head
from api.http.security import STATIC_PREFIX
from jobs import clock
from jobs.errors import HeadTooLarge, Malformed, MillraceError, UrlTooLong

MAX_HEAD = 65_536  #: Bytes of the request line and all headers.
MAX_HEADERS = 128
MAX_URL = 32_768
LEAST_BODY = 4096  #: Bytes of a body that must come within each `patience_s`, unless it ends.
_CONNECTION = "millrace.connection"  # among the scope's extensions
_KEPT = STATIC_PREFIX.encode()
_TICK_S = 0.01  # resolution of the loop's timers
STALLED = 20  #: Checks without progress after which an unread response is given up.


class Connection(HttpToolsProtocol):
    """Connection of one client.

    `patience_s`: time for a whole head, and for each LEAST_BODY bytes of a body. `turns`: those of
    all connections of the process. `linger_s`: time in which a connection at rest still takes a
    last request, once the process is to end.
    """

    def __init__(
        self, *args: Any, patience_s: float, turns: RequestTurns, linger_s: float = 0.0,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        self._patience_s, self._turns, self._linger_s = patience_s, turns, linger_s
        self._is_last = False  # the request that comes next
        self.arrived_s = 0.0  #: time at which the latest data was read, on the process's clock
        self.deferred: list[bytes] = []  #: data that waits for its turn to be parsed
        self._in_head = True  # or between two requests
        self._head = 0  # bytes of the head so far
        self._chunk = 0  # bytes of the packet that is being read
        self._body = 0  # bytes since the last check
        self._overhead = 0  # bytes since the last body byte: trailers, chunk extensions
        self._since_s = 0.0  # begin of the head, or last check of the body
        self._unread = 0  # unsent response bytes at the last check
        self._stalled = 0  # checks without progress of the reader
        self._rejection: MillraceError | None = None
        self._earlier: list[Any] = []  # requests of a pipeline before the newest, uvicorn's cycle
        self._left: asyncio.Future[None] = self.loop.create_future()  # done once the client has
        self._extensions: Any = {_CONNECTION: self}

    # -- incoming data

    def connection_made(self, transport: Any) -> None:
        """Starts the periodic check."""
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._later = self.loop.call_later(self._patience_s, self._check)

    def connection_lost(self, error: Exception | None) -> None:
        """Stops the periodic check."""
        self._later.cancel()
        self._drop_responses()
        super().connection_lost(error)

    def eof_received(self) -> None:
        """Tells calls that the client has left, also one that would still read: a proxy ends its
        half when its own client is gone, and unsent bytes would hide the end for long."""
        if not self._left.done():
            self._left.set_result(None)
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Has data parsed when it is this connection's turn."""
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._turns.receive(self, data)

    def at_rest(self) -> bool:
        """Returns True between two requests, where the client reads what it is sent."""
        if self._head or not self._in_head or self._rejection or self.flow.write_paused:
            return False
        return self.cycle is None or self.cycle.response_complete

    def read(self, data: bytes) -> None:
        """Parses data, and counts bytes of the head, the body and the framing around it."""
        if self._rejection is not None:
            return
        self._chunk = len(data)
        if self._in_head:
            if not self._head:
                self._since_s = self.loop.time()
            self._head += self._chunk
        else:
            self._body += self._chunk
            self._overhead += self._chunk
        super().data_received(data)
        if self._in_head and self._head > MAX_HEAD:
            self._reject(_head_too_large())
        elif self._overhead > MAX_HEAD:
            self._reject(Malformed("the framing of the body is larger than its content"))

    def on_headers_complete(self) -> None:
        """Checks the bounds of the head, once it is parsed."""
        if len(self.url) > MAX_URL:
            raise self._rejected(UrlTooLong(f"the URL has more than {MAX_URL:,} bytes"))
        if len(self.headers) > MAX_HEADERS:
            raise self._rejected(HeadTooLarge(f"there are more than {MAX_HEADERS} headers"))
        # A head is no longer than what came since it began; a longer packet needs the exact sum.
        if max(self._head, self._chunk) > MAX_HEAD and self._length() > MAX_HEAD:
            raise self._rejected(_head_too_large())
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            raise self._rejected(Malformed(f"there are {hosts} Host headers; send one"))
        self._in_head = False
        self._body = self._overhead = 0
        self._since_s = self.loop.time()
        before = self.cycle
        super().on_headers_complete()
        if before is not None and not before.response_complete:
            self._earlier = [one for one in self._earlier if not one.response_complete] + [before]
        if self._is_last:
            self.cycle.keep_alive = False
        self.scope["extensions"] = self._extensions
        if self.scope["http_version"] == "1.0":
            cycle: Any = self.cycle
            cycle.send = _SendUndelimited(cycle)
        if self.url.startswith(_KEPT):
            headers = self.cycle.default_headers
            self.cycle.default_headers = [pair for pair in headers if pair[0] != b"cache-control"]
        self.headers = []  # trailers are appended here, and ignored

    def on_body(self, body: bytes) -> None:
        """Resets the count of framing bytes."""
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expects the next head."""
        self._in_head, self._head, self._overhead = True, 0, 0
        super().on_message_complete()

    def _length(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    # -- timeouts

    def _check(self) -> None:
        """Runs every `patience_s` while the connection lives."""
        wait_s = self._patience_s if self.transport.is_closing() else self._check_progress()
        self._abort_if_unread()
        self._later = self.loop.call_later(wait_s, self._check)

    def _check_progress(self) -> float:
        """Ends a request that is too slow. Returns seconds until the next check."""
        left_s = self._since_s + self._patience_s - self.loop.time()
        at_work = self._responding()
        if self._in_head and (at_work or (self.cycle is not None and not self._head)):
            return self._patience_s  # no next request yet: uvicorn's keep-alive ends that
        if self.deferred:
            return self._patience_s  # the client waits for us
        if left_s > _TICK_S:
            return left_s
        if self._in_head and not self._head:
            self.transport.close()
        elif self._in_head:
            self._reject(Malformed(f"no whole request came within {self._patience_s:g} s"))
        elif not at_work or (self._body < LEAST_BODY and not self.flow.read_paused):
            slow = f"{self._body} bytes of the body came in {self._patience_s:g} s"
            self._reject(Malformed(f"{slow}; send it faster"))
        self._body, self._since_s = 0, self.loop.time()
        return self._patience_s

    def _responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _abort_if_unread(self) -> None:
        """Aborts a response whose reader has stalled."""
        unread = self.transport.get_write_buffer_size()
        self._stalled = self._stalled + 1 if unread and unread == self._unread else 0
        self._unread = unread
        if self._stalled >= STALLED:
            self.transport.abort()

    def client_left(self) -> "asyncio.Future[None]":
        """Returns a future that is done once the client has left; all requests share it."""
        if not self.transport.is_closing():
            self.flow.resume_reading()  # else nobody would learn of the end
        return self._left

    def break_off(self) -> None:
        """Aborts the connection in the middle of a response."""
        self._drop_responses()
        self.transport.abort()

    def _drop_responses(self) -> bool:
        """Tells all requests that the client is gone, which drops the rest of their responses.
        Returns True if one had begun."""
        begun = False
        if not self._left.done():
            self._left.set_result(None)
        for cycle in (*self._earlier, self.cycle):
            if cycle is not None and not cycle.response_complete:
                begun = begun or cycle.response_started
                cycle.disconnected = True
                cycle.message_event.set()
        return begun

    # -- the end of the process

    def shutdown(self) -> None:
        """Ends the connection after the response that is due. One at rest lingers: its client may
        have sent a request already, and would have to guess if it was served."""
        self._is_last = True
        if self._linger_s and not self._responding():
            self.loop.call_later(self._linger_s, self._linger_on)
        else:
            super().shutdown()

    def _linger_on(self) -> None:
        """Waits for another turn of the loop, which may have stood still and not read yet."""
        self.loop.call_later(_TICK_S, self._end_if_at_rest)

    def _end_if_at_rest(self) -> None:
        if self.at_rest() and not self.deferred:
            self.transport.close()

    # -- rejections

    def _rejected(self, error: MillraceError) -> Exception:
        """Returns an exception that stops the parser when a callback raises it;
        `send_400_response` comes next."""
        self._rejection = error
        return ValueError(error.detail)

    def send_400_response(self, msg: str) -> None:
        """Responds to what the parser can't read."""
        self._reject(self._rejection or Malformed("this is no HTTP/1.1 that can be read"))

    def _reject(self, error: MillraceError) -> None:
        """Sends the last response on this connection, unless another one has begun."""
        self._rejection = error
        can_answer = self._in_head or self._responding()
        begun = self._drop_responses()
        if can_answer and not begun and not self.transport.is_closing():
            self.transport.write(self._error_response(error))
        self.transport.close()

    def write_refusal(self, status: int, rest: bytes) -> None:
        """Writes a response to a request that isn't parsed. rest: what follows the default headers;
        the connection stays open."""
        self._since_s = self.loop.time()
        head = STATUS_LINE[status] + default_head(self.server_state.default_headers)
        self.transport.write(head + rest)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _error_response(self, error: MillraceError) -> bytes:
        body = orjson.dumps(problem_object(error, new_request_id()))
        headers = (
            *self.server_state.default_headers,
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        )
        lines = (name + b": " + value + b"\r\n" for name, value in headers)
        return b"".join((STATUS_LINE[error.status], *lines, b"\r\n", body))


class _SendUndelimited:
    """Sends a response to a client of HTTP/1.0, which knows no chunks: where no length is known,
    the end of the connection ends the body."""

    def __init__(self, cycle: Any) -> None:
        self._cycle, self._send, self._has_length = cycle, cycle.send, True

    async def __call__(self, message: Message) -> None:
        """Sends a part of the response."""
        if message["type"] == "http.response.start":
            self._has_length = any(name == b"content-length" for name, _ in message["headers"])
            self._cycle.chunked_encoding = None if self._has_length else False
        elif not self._has_length:
            self._cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)


def break_off(scope: Scope) -> None:
    """Closes the connection of a request at once: its response ends nowhere."""
    if connection := scope.get("extensions", {}).get(_CONNECTION):
        connection.break_off()


def arrived_s(scope: Scope) -> float:
    """Returns the time, on the process's clock, at which the last byte of a request was read; now,
    where its connection isn't known. A handler calls it once it has read the body."""
    connection = scope.get("extensions", {}).get(_CONNECTION)
    return connection.arrived_s if connection else clock.monotonic()


@contextmanager
def client_disconnected(scope: Scope, receive: Receive) -> "Iterator[asyncio.Future[Any]]":
    """Yields a future that is done once the client of a request has left; the request's body must
    have been read. Whoever adds a callback to it removes it again."""
    if connection := scope.get("extensions", {}).get(_CONNECTION):
        yield connection.client_left()
        return
    left = asyncio.ensure_future(receive())
    try:
        yield left
    finally:
        left.cancel()


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request line and headers have more than {MAX_HEAD:,} bytes")


def bounded_protocol(
    patience_s: float, turns: RequestTurns, linger_s: float = 0.0
) -> Callable[..., Connection]:
    """Returns a factory of connections, as uvicorn expects it."""

    def make(*args: Any, **kwargs: Any) -> Connection:
        return Connection(*args, patience_s=patience_s, turns=turns, linger_s=linger_s, **kwargs)

    return make
