"""One request to an upstream, over connections that are kept: no redirects, no proxies, no
cookies, and bounds for its time and for the size of its answer."""

import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpcore

from jobs import clock
from jobs.models.engines.upstream_options import UpstreamOptions
from jobs.telemetry.tracing.context import HERE
from workers.http_client import secrets

_IDLE_S = 15.0  # a connection is kept; most servers close theirs later
_READ_BYTES = 65_536


class Unreachable(Exception):
    """There was no answer, or only a part of it."""


class Slow(Unreachable):
    """There was none within the time."""


class TooLarge(Exception):
    """The answer is larger than it may be."""


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """headers: by name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """For any thread: as many requests at a time as there are connections. Raises ValueError where
    a secret or a certificate can't be read."""

    def __init__(
        self, options: UpstreamOptions, extra_headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(options.url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._options = options
        self._most_bytes = options.max_answer_mb << 20
        self._secrets: list[str] = []
        self._headers = [
            (b"Host", parts.netloc.encode()),
            (b"Accept", b"application/json"),
            (b"Accept-Encoding", b"identity"),
        ]
        for name, text in {**options.headers, **(extra_headers or {})}.items():
            value, secret = secrets.resolve(text, f"options.headers.{name}")
            self._headers.append((name.encode(), value.encode()))
            self._secrets += [secret] if secret else []
        self._deadlines = _Deadlines()
        self._pool = httpcore.ConnectionPool(
            ssl_context=_trust(options.ca),
            max_connections=options.concurrency.max,
            keepalive_expiry=_IDLE_S,
            network_backend=_Backend(self._deadlines),
        )

    def send(
        self, method: str, url: str, body: bytes | None = None, timeout_s: float | None = None
    ) -> UpstreamResponse:
        """timeout_s: for all of it; without one, that of the options. Raises Unreachable, Slow or
        TooLarge."""
        timeout_s = timeout_s or self._options.timeout_s
        headers = self._headers
        if here := HERE.get():
            headers = [*headers, *((n.encode(), v.encode()) for n, v in here.headers.items())]
        if body is not None:
            size = str(len(body)).encode()
            headers = [*headers, (b"Content-Type", b"application/json"), (b"Content-Length", size)]
        timeouts = {
            "connect": self._options.connect_timeout_s,
            "read": timeout_s,
            "write": timeout_s,
            "pool": timeout_s,
        }
        with self._deadlines.within(timeout_s):
            try:
                with self._pool.stream(
                    method, url, headers=headers, content=body, extensions={"timeout": timeouts}
                ) as response:
                    return UpstreamResponse(response.status, _names(response), self._read(response))
            except (httpcore.TimeoutException, TimeoutError) as error:
                if isinstance(error, httpcore.ConnectTimeout):
                    raise Unreachable("no connection in time") from None
                raise Slow(f"no answer within {timeout_s:g} s") from None
            except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
                raise Unreachable(_words(error)) from None

    def get(self, path: str) -> UpstreamResponse:
        """Of the same server, in the time that a connection may take. Raises as `send`."""
        return self.send("GET", self._origin + path, timeout_s=self._options.connect_timeout_s)

    def without_secrets(self, text: str) -> str:
        """What a server says may quote the key that it was sent."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def close(self) -> None:
        self._pool.close()

    def _read(self, response: httpcore.Response) -> bytes:
        pieces, size = [], 0
        for piece in response.iter_stream():
            pieces.append(piece)
            size += len(piece)
            if size > self._most_bytes:
                raise TooLarge(f"the answer is larger than {self._options.max_answer_mb} MiB")
        return b"".join(pieces)


def _names(response: httpcore.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers}  # fmt: skip


def _trust(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"options.ca: {ca} can't be read: {error.strerror or error}") from error


def _words(error: Exception) -> str:
    """Without addresses: who asks need not know where a model is."""
    cause = error.__cause__ or error.__context__ or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate isn't trusted: {cause.verify_message}"
    if isinstance(error, httpcore.ConnectError):
        return "no connection"
    return "the connection broke"


class _Deadlines:
    """Until when the request of this thread must have ended."""

    def __init__(self) -> None:
        self._here = threading.local()

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        self._here.until_s = clock.monotonic() + timeout_s
        try:
            yield
        finally:
            del self._here.until_s

    def left_s(self, timeout_s: float | None) -> float:
        """The less of what is left and a timeout. Raises TimeoutError when there is nothing."""
        left_s: float = self._here.until_s - clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s if timeout_s is None else min(left_s, timeout_s)


class _Backend(httpcore.NetworkBackend):
    """httpcore's own, within the deadline: no server gets more time by sending a byte now and
    then."""

    def __init__(self, deadlines: _Deadlines) -> None:
        self._deadlines, self._inner = deadlines, httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._deadlines.left_s(timeout)
        stream = self._inner.connect_tcp(host, port, left_s, local_address, socket_options)
        return _Stream(stream, self._deadlines)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, deadlines: _Deadlines) -> None:
        self._inner, self._deadlines = inner, deadlines

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadlines.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        peer = self._inner.get_extra_info("socket")
        try:
            peer.settimeout(self._deadlines.left_s(timeout))
            peer.sendall(buffer)
        except (BrokenPipeError, ConnectionResetError) as error:
            # It may have answered before it closed: httpcore goes on and reads.
            raise httpcore.WriteError(str(error)) from error

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._deadlines.left_s(timeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left_s), self._deadlines)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def close(self) -> None:
        with suppress(OSError):
            self._inner.close()
