"""One attempt of a delivery: a POST to a checked URL and address, and its result."""

import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.security.ssrf import AllowList, url_problem
from workers.http_client.addresses import Resolver, resolve

if TYPE_CHECKING:  # loaded with the first delivery
    from workers.http_client.client import NoResponse, Response

TIMEOUT_S = 15.0
UNREACHABLE = (
    "no connection: the name isn't known, has an address that isn't public, or nothing accepts "
    "connections there; the keeper's log tells operators which"
)
_MAX_BYTES = 4096  # of the response's body, which is read for politeness and thrown away


@dataclass(frozen=True, slots=True)
class Attempt:
    """Result of one POST."""

    status: int | None = None  #: None where no response came
    error: str | None = None  #: in the tenant's words; None for a success
    retry_after_s: float | None = None  #: delay that the endpoint asks for, s
    cause: str | None = None  #: reason that only operators may know; None: as `error`


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    allow: AllowList,
    tls: ssl.SSLContext,
    timeout_s: float = TIMEOUT_S,
    resolver: Resolver = resolve,
) -> Attempt:
    """Posts to a URL whose form and addresses are checked here, within timeout_s in all."""
    from workers.http_client.client import Client, NoResponse
    from workers.http_client.pinned import PinnedConnect

    if problem := url_problem(url, allow):
        return Attempt(error=f"the URL {problem[1]}")
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    try:
        with closing(Client(tls, PinnedConnect(allow, resolver))) as client:
            response = client.send(
                "POST", url, given, body,
                timeout_s=timeout_s, max_bytes=_MAX_BYTES, truncate=True,
            )  # fmt: skip
    except NoResponse as error:
        if _has_not_connected(error):
            return Attempt(error=UNREACHABLE, cause=f"{error}: {error.cause}")
        return Attempt(error=_reason(error.cause, timeout_s))
    except ValueError as error:
        return Attempt(error=_reason(error, timeout_s))
    return _result(response)


def _result(response: "Response") -> Attempt:
    status = response.status
    if 200 <= status < 300:
        return Attempt(status)
    note = "; redirects are not followed" if 300 <= status < 400 else ""
    return Attempt(status, f"answered {status}{note}", response.retry_after_s)


def _has_not_connected(error: "NoResponse") -> bool:
    """Returns True if nothing was sent to anybody: one error for all reasons, from which a tenant
    can't tell which internal names there are."""
    import httpcore

    attempt = isinstance(error.__cause__, httpcore.ConnectError)
    return attempt and not isinstance(error.cause, ssl.SSLError | TimeoutError)


def _reason(error: BaseException, timeout_s: float) -> str:
    """Describes a failure without the addresses that a name resolved to: they are not public."""
    import httpcore

    if isinstance(error, TimeoutError | httpcore.TimeoutException):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
    if isinstance(error, OSError | httpcore.NetworkError):
        return f"no connection: {getattr(error, 'strerror', None) or error}"
    return f"no HTTP: {error}"
