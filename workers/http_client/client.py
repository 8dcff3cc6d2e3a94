"""HTTP client with bounds for the time of a request and the size of its response.

NoResponse    no response, or only a part of it
└── Slow      none within the time
TooLarge      the response is larger than it may be
"""

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpcore

from jobs import clock
from workers.http_client.deadline import Connect, Deadline, DeadlineBackend, connect

_IDLE_S = 15.0  # for which a connection is kept; most servers close theirs later
_FAILURES = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError)


class NoResponse(Exception):
    """Raised where no complete response came; `cause` is the reason."""

    @property
    def cause(self) -> BaseException:
        """Error of the connection attempt, or of the connection, that led to this one."""
        error = self.__cause__ or self
        attempt = isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout)
        return (attempt and error.__context__) or error  # httpcore drops its __cause__


class Slow(NoResponse):
    """Raised where no response came within the time."""


class TooLarge(Exception):
    """Raised where a response is larger than it may be."""


@dataclass(frozen=True, slots=True)
class Response:
    """Response of a server."""

    status: int
    headers: Mapping[str, str]  #: by name in lower case
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """Seconds that the server asks to wait (Retry-After); None where it names none."""
        value = self.headers.get("retry-after", "")
        if value.strip().isdecimal():
            return float(value)
        try:
            at = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max(0.0, (at - clock.now()).total_seconds())


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """Response whose body is still coming."""

    status: int
    headers: Mapping[str, str]  #: by name in lower case
    pieces: Iterable[bytes]  #: of the body
    interrupt: Callable[[], None]  #: ends it: a blocked read fails; for any thread


class Client:
    """Sends requests from any thread, as many at a time as there are connections.

    Follows no redirects, uses no proxies and keeps no cookies.
    """

    def __init__(
        self, tls: ssl.SSLContext, connect: Connect = connect, max_connections: int = 1
    ) -> None:
        self._deadline = Deadline()
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls,
            max_connections=max_connections,
            keepalive_expiry=_IDLE_S,
            network_backend=DeadlineBackend(self._deadline, connect),
        )

    def send(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes | None = None,
        *,
        timeout_s: float,
        connect_timeout_s: float | None = None,
        max_bytes: int,
        truncate: bool = False,
    ) -> Response:
        """Sends a request and reads its response, within timeout_s in all.

        truncate: reads max_bytes of the body at most and accepts one that breaks off. Raises
        NoResponse, Slow, or TooLarge where the body has more than max_bytes.
        """
        with self.stream(
            method, url, headers, body, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s
        ) as response:
            content = _read(response.pieces, max_bytes, truncate)
            return Response(response.status, response.headers, content)

    @contextmanager
    def stream(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes | None = None,
        *,
        timeout_s: float,
        connect_timeout_s: float | None = None,
    ) -> Iterator[StreamedResponse]:
        """Sends a request, and yields its response before the body has come.

        timeout_s: for the whole of it. Raises as `send`, also while the body is read; leaving the
        context closes a connection whose body was not read to the end.
        """
        self._deadline.start(timeout_s)
        given = [(b"Host", urlsplit(url).netloc.encode()), *headers]
        timeouts = {"timeout": {"connect": connect_timeout_s, "pool": timeout_s}}
        with (
            _no_response(timeout_s),
            self._pool.stream(
                method, url, headers=given, content=body, extensions=timeouts
            ) as response,
        ):
            peer = response.extensions["network_stream"]
            yield StreamedResponse(
                response.status, _headers(response), response.iter_stream(), peer.interrupt
            )

    def close(self) -> None:
        """Closes all connections."""
        self._pool.close()


@contextmanager
def _no_response(timeout_s: float) -> Iterator[None]:
    """Translates errors of httpcore into NoResponse and Slow."""
    try:
        yield
    except httpcore.ConnectTimeout as error:
        raise NoResponse("no connection in time") from error
    except (httpcore.TimeoutException, TimeoutError) as error:
        raise Slow(f"no answer within {timeout_s:g} s") from error
    except httpcore.ConnectError as error:
        raise NoResponse("no connection") from error
    except _FAILURES as error:
        raise NoResponse("the connection broke") from error


def _read(body: Iterable[bytes], max_bytes: int, truncate: bool) -> bytes:
    pieces, size = [], 0
    with suppress(*_FAILURES) if truncate else nullcontext():
        for piece in body:
            pieces.append(piece)
            size += len(piece)
            if truncate and size >= max_bytes:
                break
            if size > max_bytes:
                raise TooLarge(f"the answer is larger than {max_bytes >> 20} MiB")
    return b"".join(pieces)


def _headers(response: httpcore.Response) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
    }
