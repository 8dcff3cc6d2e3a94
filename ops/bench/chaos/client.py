"""HTTP client of a careful user: it uses any api, and retries failures that pass."""

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from jobs import clock
from ops.bench.load.client import response_lines

PATIENCE_S = 120.0
_TIMEOUT_S = 20.0

#: Errors of a request without a response, or with one that breaks off.
CONNECTION_ERRORS = (OSError, http.client.HTTPException)

Body = bytes | Iterable[bytes] | None
NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Response:
    """Response that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Parsed body."""
        return json.loads(self.body)

    @property
    def transient(self) -> bool:
        """True if a retry may succeed."""
        return self.status >= 500 or self.status in (409, 429)


class Unanswered(Exception):
    """Reports that no api answered within PATIENCE_S."""


class Api:
    """All api processes behind one name; belongs to one thread."""

    def __init__(self, ports: list[int], dice: Random) -> None:
        self._ports, self._dice = ports, dice

    def _connect(self) -> http.client.HTTPConnection:
        port = self._dice.choice(self._ports)
        return http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

    def request(
        self, method: str, path: str, body: Body = None, headers: Mapping[str, str] = NO_HEADERS
    ) -> Response:
        """Tries once. Raises CONNECTION_ERRORS."""
        with closing(self._connect()) as connection:
            streamed = body is not None and not isinstance(body, bytes)
            connection.request(method, path, body, dict(headers), encode_chunked=streamed)
            response = connection.getresponse()
            return Response(response.status, dict(response.headers), response.read())

    def retry(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Tries until there is a response that isn't transient. Raises Unanswered."""
        deadline_s = clock.monotonic() + PATIENCE_S
        last: object = None
        while clock.monotonic() < deadline_s:
            try:
                response = self.request(method, path, body)
                if not response.transient:
                    return response
                last = response
            except CONNECTION_ERRORS as error:
                last = error
            clock.sleep(self._dice.uniform(0.05, 0.3))
        raise Unanswered(f"{method} {path}: {last!r}")

    @contextmanager
    def stream(self, path: str) -> Iterator[tuple[http.client.HTTPResponse, Iterator[bytes]]]:
        """Opens a stream of NDJSON: its head, and its lines. Raises CONNECTION_ERRORS."""
        with closing(self._connect()) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            yield response, response_lines(response)

    def break_off(self, path: str, blocks: Iterable[bytes], headers: Mapping[str, str]) -> int:
        """Uploads these blocks and closes the connection before the end; returns the bytes."""
        sent = 0
        with closing(self._connect()) as connection:
            connection.putrequest("POST", path)
            for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
                connection.putheader(name, value)
            connection.endheaders()
            for block in blocks:
                connection.send(b"%x\r\n%b\r\n" % (len(block), block))
                sent += len(block)
        return sent
