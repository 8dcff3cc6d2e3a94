"""A connection of a client that may be slow, broken or hostile: uvicorn's, with bounds.

A head that is too long, a request that trickles, a body that goes on after its answer, an answer
that nobody reads: each ends its connection. What keeps to the bounds pays two additions and a look
at the clock for each packet.
"""

from collections.abc import Callable
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from api.http.errors import as_json
from api.http.request_id import new_request_id
from api.http.security import KEPT
from jobs.errors import HeadTooLarge, Malformed, MillraceError, UrlTooLong

MAX_HEAD = 65_536
"""Bytes of the request line and all headers."""
MAX_HEADERS = 128
MAX_URL = 32_768
LEAST_BODY = 4096
"""Bytes of a body that must come within each stretch of patience, unless it ends."""
_KEPT = KEPT.encode()
_TICK_S = 0.01  # timers go by milliseconds
STALLED = 20
"""An answer of which nobody took a byte is given up after so many stretches."""


class Connection(HttpToolsProtocol):
    """patience_s: within so long a head must have come, and the next bytes of a body."""

    def __init__(self, *args: Any, patience_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience_s = patience_s
        self._in_head = True  # or between two requests
        self._head = 0  # bytes of it, so far
        self._chunk = 0  # bytes of the packet that is being read
        self._body = 0  # bytes since the last look
        self._around = 0  # bytes since there was one of the body itself: trailers, extensions
        self._since_s = 0.0  # when the head began, or the body was last looked at
        self._unread = 0  # bytes of an answer that waited at the last look
        self._stalled = 0  # looks since somebody read
        self._refusal: MillraceError | None = None

    # -- what comes in

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since_s = self.loop.time()
        self._later = self.loop.call_later(self._patience_s, self._look)

    def connection_lost(self, error: Exception | None) -> None:
        self._later.cancel()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._chunk = len(data)
        if self._in_head:
            if not self._head:
                self._since_s = self.loop.time()
            self._head += self._chunk
        else:
            self._body += self._chunk
            self._around += self._chunk
        super().data_received(data)
        if self._in_head and self._head > MAX_HEAD:
            self._refuse(_head_too_large())
        elif self._around > MAX_HEAD:
            self._refuse(Malformed("there is more around the body than in it"))

    def on_headers_complete(self) -> None:
        if len(self.url) > MAX_URL:
            raise self._refused(UrlTooLong(f"the URL has more than {MAX_URL:,} bytes"))
        if len(self.headers) > MAX_HEADERS:
            raise self._refused(HeadTooLarge(f"there are more than {MAX_HEADERS} headers"))
        # No head is longer than what came since it began; of one in a longer packet, each part.
        if max(self._head, self._chunk) > MAX_HEAD and self._length() > MAX_HEAD:
            raise self._refused(_head_too_large())
        self._in_head = False
        self._body = self._around = 0
        self._since_s = self.loop.time()
        super().on_headers_complete()
        if self.url.startswith(_KEPT):
            headers = self.cycle.default_headers
            self.cycle.default_headers = [pair for pair in headers if pair[0] != b"cache-control"]
        self.headers = []  # trailers end up here, and nowhere

    def on_body(self, body: bytes) -> None:
        self._around = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._head, self._around = True, 0, 0
        super().on_message_complete()

    def _length(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    # -- what takes too long

    def _look(self) -> None:
        """Once in each stretch of patience, for as long as the connection lives."""
        wait_s = self._patience_s if self.transport.is_closing() else self._judge()
        self._give_up_if_unread()
        self._later = self.loop.call_later(wait_s, self._look)

    def _judge(self) -> float:
        """Ends what takes too long; when to look again."""
        left_s = self._since_s + self._patience_s - self.loop.time()
        at_work = self._at_work()
        if self._in_head and (at_work or (self.cycle is not None and not self._head)):
            return self._patience_s  # the next request hasn't begun: uvicorn ends that wait
        if left_s > _TICK_S:
            return left_s
        if self._in_head and not self._head:
            self.transport.close()
        elif self._in_head:
            self._refuse(Malformed(f"no whole request came within {self._patience_s:g} s"))
        elif not at_work or (self._body < LEAST_BODY and not self.flow.read_paused):
            slow = f"{self._body} bytes of the body came in {self._patience_s:g} s"
            self._refuse(Malformed(f"{slow}; send it faster"))
        self._body, self._since_s = 0, self.loop.time()
        return self._patience_s

    def _at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _give_up_if_unread(self) -> None:
        """An answer whose reader stands still."""
        unread = self.transport.get_write_buffer_size()
        self._stalled = self._stalled + 1 if unread and unread == self._unread else 0
        self._unread = unread
        if self._stalled >= STALLED:
            self.transport.abort()

    # -- refusals

    def _refused(self, error: MillraceError) -> Exception:
        """Raised in a callback of the parser, it stops the parser: `send_400_response` is next."""
        self._refusal = error
        return ValueError(error.detail)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or Malformed("this is no HTTP/1.1 that can be read"))

    def _refuse(self, error: MillraceError) -> None:
        """The last answer on this connection, unless another one has begun."""
        self._refusal = error
        can_answer = self._in_head
        if self._at_work():
            can_answer = not self.cycle.response_started
            self.cycle.disconnected = True  # what it still says goes nowhere
            self.cycle.message_event.set()
        if can_answer and not self.transport.is_closing():
            self.transport.write(self._answer(error))
        self.transport.close()

    def _answer(self, error: MillraceError) -> bytes:
        body = orjson.dumps(as_json(error, new_request_id()))
        headers = (
            *self.server_state.default_headers,
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        )
        lines = (name + b": " + value + b"\r\n" for name, value in headers)
        return b"".join((STATUS_LINE[error.status], *lines, b"\r\n", body))


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"the request line and headers have more than {MAX_HEAD:,} bytes")


def bounded(patience_s: float) -> Callable[..., Connection]:
    """Makes connections, as uvicorn asks for them."""

    def make(*args: Any, **kwargs: Any) -> Connection:
        return Connection(*args, patience_s=patience_s, **kwargs)

    return make
