# Generated from millrace.aio by ops/generate_sync_client.py; change it there.
"""Connections to the api: requests with retries, streams, errors."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millrace import clock
from millrace.clock import Deadline
from millrace.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    InputError,
)
from millrace.retries import Retries
from millrace.wire import Lines, Request, blocks

if TYPE_CHECKING:  # loaded with the first client: its import takes longer than many a command
    import httpx

_CONNECT_S = 10.0


class Transport:
    """HTTP client of one api, which tries again what may pass.

    key: API key, if any; timeout_s: for each step of a request; max_retries: of a request. own:
    False where `http` is closed by whoever made it, who may send other requests by it: nothing is
    changed in it.
    """

    def __init__(
        self,
        url: str,
        key: str,
        http: "httpx.Client",
        *,
        timeout_s: float,
        max_retries: int,
        own: bool,
    ) -> None:
        self.url, self._http, self._own = url.rstrip("/"), http, own
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout_s, self._max_retries = timeout_s, max_retries
        self._reached = False

    def retries(
        self, deadline: Deadline, *, patience_s: float = 0.0, repeatable: bool = True
    ) -> Retries:
        """Returns the retries of one request, or of one thing that is followed."""
        return Retries(deadline, self._max_retries, patience_s=patience_s, repeatable=repeatable)

    def send(
        self,
        request: Request,
        deadline: Deadline | None = None,
        *,
        patience_s: float = 0.0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> "httpx.Response":
        """Sends a request until it is answered. Raises APIError.

        patience_s: longest outage that it outlasts; on_failure: called before each retry.
        """
        deadline = deadline or Deadline()
        retries = self.retries(deadline, patience_s=patience_s, repeatable=request.repeatable)
        while True:
            try:
                return self._once(request, deadline)
            except APIError as error:
                pause_s = self.pause_s(retries, error)
            on_failure()
            clock.sleep(pause_s)

    def pause_s(self, retries: Retries, error: APIError) -> float:
        """Returns the time before a retry; raises the error of an address that nobody has ever
        answered at, or accepted a connection that broke."""
        if isinstance(error, APIConnectionError):
            self._reached = self._reached or not error.refused
            if not self._reached:
                raise error
        return retries.pause_s(error)

    def _once(self, request: Request, deadline: Deadline) -> "httpx.Response":
        with self._translated():
            response = self._http.request(**self._options(request, deadline))
            self._reached = True
        _check(response, request.lines)
        return response

    @contextmanager
    def open(
        self, request: Request, deadline: Deadline | None = None
    ) -> Iterator["httpx.Response"]:
        """Opens a stream; whoever reads it knows where to go on. Raises APIError, also within.

        deadline: longest that any step of it may take.
        """
        options = self._options(request, deadline or Deadline())
        with self._translated():
            with self._http.stream(**options) as response:
                self._reached = True
                if not response.is_success:
                    response.read()
                    _check(response)
                yield response

    def _options(self, request: Request, deadline: Deadline) -> dict[str, Any]:
        import httpx

        left_s = max(deadline.left_s(self._timeout_s), 0.001)
        headers = httpx.Headers(self._headers)  # whose names are the same in any case
        headers.update(request.headers)
        options: dict[str, Any] = {
            "method": request.method,
            "url": f"{self.url}/{request.path.lstrip('/')}",
            "params": request.query or None,
            "headers": headers,
            "timeout": (min(left_s, _CONNECT_S), left_s, left_s, left_s),
        }
        if request.json is not None:
            options["json"] = request.json
        if request.lines is not None:
            options["content"] = _content(request.lines)
            headers["Content-Type"] = "application/x-ndjson"
        return options

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turns errors of the connection into ours."""
        import httpx

        try:
            yield
        except httpx.TimeoutException as error:
            raise APITimeoutError(
                f"{self.url} did not answer in time: {error or type(error).__name__}",
                refused=isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout),
            ) from error
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise APIConnectionError(
                f"no api answers at {self.url}: {error}", refused=True
            ) from error
        except httpx.LocalProtocolError:
            # Not its text, nor as its cause: it has the value, which may be the API key.
            raise InputError("a header can't be sent: it has a line end, or the like") from None
        except httpx.TransportError as error:
            raise APIConnectionError(f"the connection to {self.url} broke: {error}") from error

    def close(self) -> None:
        """Closes the connections."""
        if self._own:
            self._http.close()


def _content(lines: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks(lines):
        yield block


def line_blocks(response: "httpx.Response") -> Iterator[list[bytes]]:
    """Yields the lines of a body as they come, those of each chunk together."""
    lines = Lines()
    for chunk in response.iter_bytes():
        if found := lines.feed(chunk):
            yield found
    if found := lines.end():
        yield found


def _check(response: "httpx.Response", lines: Iterable[bytes] | None = None) -> None:
    if not response.is_success:
        place = getattr(lines, "place", None)  # of a file's items
        raise APIStatusError.of(response.status_code, response.content, response.headers, place)
