"""One try: a POST, and what came back of it. No redirects, no proxies, no cookies."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpcore

from jobs import clock
from jobs.ssrf import AllowList, url_problem
from workers.http_client.pinned import Deadline, Forbidden, PinnedBackend, Resolver, resolve

TIMEOUT_S = 15.0
_MOST_BYTES = 4096  # of the response's body: read for politeness, and thrown away
_FAILURES = (
    httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError, ValueError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """status: None where there was none; error: in words, None for a success."""

    status: int | None = None
    error: str | None = None
    retry_after_s: float | None = None


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    allow: AllowList,
    tls: ssl.SSLContext,
    timeout_s: float = TIMEOUT_S,
    resolver: Resolver = resolve,
) -> WebhookResponse:
    """Posts to a URL whose form and addresses are checked here, within timeout_s in all."""
    if no := url_problem(url, allow):
        return WebhookResponse(error=f"the URL {no[1]}")
    backend = PinnedBackend(allow, Deadline(timeout_s), resolver)
    try:
        with (
            httpcore.ConnectionPool(ssl_context=tls, network_backend=backend) as pool,
            pool.stream("POST", url, headers=_with_host(headers, url), content=body) as response,
        ):
            with suppress(*_FAILURES):  # its status stands
                _read_some(response)
            return _answer(response)
    except _FAILURES as error:
        return WebhookResponse(error=_words(error, timeout_s))


def _with_host(headers: Mapping[str, str], url: str) -> list[tuple[bytes | str, bytes | str]]:
    return [("Host", urlsplit(url).netloc), *headers.items()]


def _read_some(response: httpcore.Response) -> None:
    size = 0
    for chunk in response.iter_stream():
        size += len(chunk)
        if size >= _MOST_BYTES:
            return


def _answer(response: httpcore.Response) -> WebhookResponse:
    status = response.status
    if 200 <= status < 300:
        return WebhookResponse(status)
    note = "; redirects are not followed" if 300 <= status < 400 else ""
    given = {name.lower(): value for name, value in response.headers}.get(b"retry-after", b"")
    return WebhookResponse(
        status, f"answered {status}{note}", retry_after_s(given.decode("latin-1"))
    )


def retry_after_s(value: str) -> float | None:
    """Seconds from now, of a Retry-After in seconds or as an HTTP date; None for anything else."""
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - clock.now()).total_seconds())


def _words(error: Exception, timeout_s: float) -> str:
    """Says nothing of what a name resolved to: that is not for everybody."""
    if isinstance(error, Forbidden):
        return f"{error}; MILLRACE_WEBHOOK_ALLOW can allow it"
    if isinstance(error, TimeoutError | httpcore.TimeoutException):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, socket.gaierror):
        return f"the name can't be resolved: {error.strerror}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
    if isinstance(error, OSError | httpcore.NetworkError):
        return f"no connection: {getattr(error, 'strerror', None) or error}"
    return f"no HTTP: {error}"
