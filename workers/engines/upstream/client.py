"""HTTP client of one upstream: its headers with their secrets, its certificates and its bounds."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from jobs.models.engines.upstream_options import UpstreamOptions
from jobs.telemetry.tracing.context import CURRENT
from workers.engines.upstream import secrets
from workers.http_client.client import Client, NoResponse, Response, StreamedResponse


class UpstreamClient:
    """Sends requests over connections that are kept, from any thread.

    Raises ValueError where a secret or a certificate can't be read.
    """

    def __init__(
        self, options: UpstreamOptions, extra_headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(options.url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._options = options
        self._secrets: list[str] = []
        self._headers = [(b"Accept", b"application/json"), (b"Accept-Encoding", b"identity")]
        for name, text in {**options.headers, **(extra_headers or {})}.items():
            value, secret = secrets.resolve(text, f"options.headers.{name}")
            self._headers.append((name.encode(), value.encode()))
            self._secrets += [secret] if secret else []
        tls = _trust(options.ca)
        # One more for health and metrics, which are needed most while all others are in use.
        self._client = Client(tls, max_connections=options.concurrency.max + 1)

    def send(
        self, method: str, url: str, body: bytes | None = None, timeout_s: float | None = None
    ) -> Response:
        """Sends a request, within timeout_s or the options' time. Raises as `Client.send`."""
        try:
            return self._client.send(
                method,
                url,
                self._request_headers(body),
                body,
                timeout_s=timeout_s or self._options.timeout_s,
                connect_timeout_s=self._options.connect_timeout_s,
                max_bytes=self._options.max_answer_mb << 20,
            )
        except NoResponse as error:
            _hide_address(error)
            raise

    @contextmanager
    def stream(self, url: str, body: bytes) -> Iterator[StreamedResponse]:
        """Posts a request, and yields its response before the body has come. Raises as
        `Client.stream`."""
        options = self._options
        try:
            with self._client.stream(
                "POST",
                url,
                self._request_headers(body),
                body,
                timeout_s=options.timeout_s,
                connect_timeout_s=options.connect_timeout_s,
            ) as response:
                yield response
        except NoResponse as error:
            _hide_address(error)
            raise

    def _request_headers(self, body: bytes | None) -> list[tuple[bytes, bytes]]:
        headers = self._headers
        if here := CURRENT.get():
            headers = [*headers, *((n.encode(), v.encode()) for n, v in here.headers.items())]
        return headers if body is None else [*headers, (b"Content-Type", b"application/json")]

    def get(self, path: str) -> Response:
        """Sends a GET to the same server, within the time for a connection. Raises as `send`."""
        return self.send("GET", self._origin + path, timeout_s=self._options.connect_timeout_s)

    def without_secrets(self, text: str) -> str:
        """Replaces the secrets in a text: a server may quote the key that it was sent."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def _hide_address(error: NoResponse) -> None:
    """Raises NoResponse in place of an error that names an address: clients need not know where a
    model is."""
    if isinstance(error.cause, ssl.SSLCertVerificationError):
        fault = error.cause.verify_message.partition(",")[0]  # the rest names the host
        raise NoResponse(f"its certificate isn't trusted: {fault}") from error


def _trust(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"options.ca: {ca} can't be read: {error.strerror or error}") from error
