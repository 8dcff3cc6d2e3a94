"""Inputs that are addresses: fetched from https:// and s3://, within a size and a time.

A name is resolved once, and only public addresses are connected to (MILLRACE_FETCH_ALLOW adds
others); redirects aren't followed. S3 is reached with the platform's own credentials, so only what
MILLRACE_S3_ALLOW has for the tenant is read.
"""

import logging
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from jobs import clock
from jobs.blobs import s3_locations
from jobs.errors import BlobStoreUnavailable, Untransferable
from jobs.security.ssrf import AllowList, url_problem
from jobs.settings import Settings
from jobs.telemetry.metrics import preparation as metrics
from workers.engines.protocol import InvalidInput, RateLimited, Transient
from workers.http_client.addresses import Resolver, resolve

if TYPE_CHECKING:  # loaded with the first address
    from workers.http_client.client import Client, Response

_log = logging.getLogger(__name__)

SETTING = "MILLRACE_FETCH_ALLOW"
UNREACHABLE = (
    "no connection to the address: its host isn't known, isn't public, or accepts none; the "
    "worker's log tells operators which"
)
_AT_ONCE = 16  # addresses of one worker
_MOST_TOGETHER, _TOGETHER_BYTES = 32, 64 << 20  # addresses of one claim, and what is there, about
_CHUNK = 1 << 20
_LATER = {408, 425, 429}  # of those below 500: another try may work


class Fetcher:
    """Fetches addresses for one worker; for any thread."""

    def __init__(self, settings: Settings, resolver: Resolver = resolve) -> None:
        self._settings, self._resolver = settings, resolver
        self._allow = AllowList.parse(settings.fetch_allow)
        self._max_bytes = settings.fetch_max_mb << 20
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch")
        #: Of what an address had lately, in the mean.
        self.item_bytes = 0.0
        self._opening = threading.Lock()
        self._opened: Client | None = None

    def fetch(self, addresses: Sequence[tuple[str, str]]) -> list[bytes | Exception]:
        """Fetches addresses, each for a tenant, several at a time. Returns the bytes of each:
        InvalidInput where the address can't be used, Transient where another try may work."""
        found = list(self._threads.map(self._fetch_one, addresses))
        if sizes := [len(one) for one in found if isinstance(one, bytes)]:
            mean = sum(sizes) / len(sizes)
            self.item_bytes = max(mean, (self.item_bytes + mean) / 2)  # more counts at once
        return found

    @property
    def at_once(self) -> int:
        """Number of addresses that one claim should fetch together, so that it holds few bytes."""
        return min(_MOST_TOGETHER, max(1, int(_TOGETHER_BYTES / max(1.0, self.item_bytes))))

    def _fetch_one(self, asked: tuple[str, str]) -> bytes | Exception:
        url, tenant = asked
        since_s = clock.monotonic()
        scheme = url.partition(":")[0]
        try:
            raw = self._read(url, tenant)
        except (InvalidInput, Transient) as error:
            outcome = "invalid" if isinstance(error, InvalidInput) else "transient"
            metrics.fetched(scheme, outcome, clock.monotonic() - since_s, 0)
            return error
        metrics.fetched(scheme, "fetched", clock.monotonic() - since_s, len(raw))
        return raw

    def _read(self, url: str, tenant: str) -> bytes:
        try:
            return self._object(url, tenant) if url.startswith("s3:") else self._page(url)
        except (InvalidInput, Transient):
            raise
        except Exception as error:  # costs its item a try, not the claim that it is part of
            frames = "".join(traceback.format_tb(error.__traceback__))
            name = type(error).__name__
            _log.error("%s: %s, which nobody expects\n%s", _shown(url), name, frames)
            raise Transient(f"the address can't be fetched: {name}") from None

    # -- https

    def _page(self, url: str) -> bytes:
        from workers.http_client.client import NoResponse, TooLarge

        if problem := url_problem(url, self._allow, SETTING):
            raise InvalidInput(f"the address {problem[1]}")
        timeout_s = self._settings.fetch_timeout_s
        try:
            response = self._client().send(
                "GET", url, [(b"User-Agent", b"millrace")],
                timeout_s=timeout_s, max_bytes=self._max_bytes,
            )  # fmt: skip
        except TooLarge:
            raise self._too_large() from None
        except NoResponse as error:
            _log.warning("%s: %s: %s", _shown(url), error, error.cause)
            raise Transient(_reason(error)) from None
        except ValueError as error:
            raise InvalidInput(f"the address can't be fetched: {error}") from None
        return _body(response)

    def _client(self) -> "Client":
        import httpx

        from workers.http_client.client import Client
        from workers.http_client.pinned import PinnedConnect

        with self._opening:
            if self._opened is None:
                connect = PinnedConnect(self._allow, self._resolver, SETTING)
                self._opened = Client(httpx.create_ssl_context(), connect, _AT_ONCE)
            return self._opened

    # -- S3

    def _object(self, url: str, tenant: str) -> bytes:
        settings = self._settings
        try:
            place = s3_locations.parse(url)
            s3_locations.check(place, tenant, settings.s3_allow, settings.blobs)
            from jobs.blobs.objects import Objects  # boto3 takes a third of a second to load

            until_s = clock.monotonic() + settings.fetch_timeout_s
            pieces, size = list[bytes](), 0
            with Objects(settings.s3_endpoint).open(place) as source:
                while piece := source.read(_CHUNK):
                    pieces.append(piece)
                    size += len(piece)
                    if size > self._max_bytes:
                        raise self._too_large()
                    if clock.monotonic() > until_s:
                        raise Transient(f"no whole object within {settings.fetch_timeout_s:g} s")
            return b"".join(pieces)
        except Untransferable as error:
            raise InvalidInput(error.detail) from None
        except BlobStoreUnavailable as error:
            raise Transient(error.detail) from None
        except ValueError as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"the address {error}") from None

    def _too_large(self) -> InvalidInput:
        most = self._settings.fetch_max_mb
        return InvalidInput(f"what is at the address has more than {most} MiB; make it smaller")


def _shown(url: str) -> str:
    """Returns an address for the log: the query of a presigned one is a credential."""
    return url.partition("?")[0].partition("#")[0]


def _body(response: "Response") -> bytes:
    status = response.status
    if 200 <= status < 300:
        return response.body
    if status == 429 and response.retry_after_s:
        raise RateLimited("the address answered 429", response.retry_after_s)
    if status >= 500 or status in _LATER:
        raise Transient(f"the address answered {status}")
    note = "; redirects are not followed: give its last address" if status < 400 else ""
    raise InvalidInput(f"the address answered {status}{note}")


def _reason(error: Exception) -> str:
    """Returns a failure in the tenant's words: one for all that fail to connect, from which nobody
    can tell which internal names there are."""
    import httpcore

    from workers.http_client.client import Slow

    if isinstance(error.__cause__, httpcore.ConnectError | httpcore.ConnectTimeout):
        return UNREACHABLE
    return str(error) if isinstance(error, Slow) else "the connection to the address broke"
