"""HTTP client of a careful user: it uses any api, and retries failures that pass."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx

from jobs import clock
from ops.bench.load.client import lines_of

PATIENCE_S = 120.0
_TIMEOUT_S = 20.0

#: Errors of a request without a response, or with one that breaks off.
CONNECTION_ERRORS = (httpx.TransportError, EOFError)


class Unanswered(Exception):
    """Reports that no api answered within PATIENCE_S."""


class _BrokenOff(Exception):
    pass


class Api:
    """All api processes behind one name; belongs to one thread."""

    def __init__(self, ports: list[int], dice: Random) -> None:
        self._ports, self._dice = ports, dice
        fresh = httpx.Limits(max_keepalive_connections=0)
        plain = {"Accept-Encoding": "identity"}  # lines are read as they come
        self._http = httpx.Client(timeout=_TIMEOUT_S, limits=fresh, headers=plain, trust_env=False)

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._dice.choice(self._ports)}{path}"

    def request(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:  # fmt: skip
        """Tries once. Raises CONNECTION_ERRORS."""
        return self._http.request(method, self._url(path), content=body, headers=headers)

    def retry(self, method: str, path: str) -> httpx.Response:
        """Tries until there is a response that isn't transient. Raises Unanswered."""
        deadline_s = clock.monotonic() + PATIENCE_S
        last: object = None
        while clock.monotonic() < deadline_s:
            try:
                response = self.request(method, path)
                if not transient(response):
                    return response
                last = response
            except CONNECTION_ERRORS as error:
                last = error
            clock.sleep(self._dice.uniform(0.05, 0.3))
        raise Unanswered(f"{method} {path}: {last!r}")

    @contextmanager
    def stream(self, path: str) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
        """Opens a stream of NDJSON: its head, and its lines. Raises CONNECTION_ERRORS."""
        with self._http.stream("GET", self._url(path)) as response:
            yield response, lines_of(response.iter_raw())

    def break_off(self, path: str, blocks: Iterable[bytes], headers: Mapping[str, str]) -> int:
        """Uploads these blocks and closes the connection before the end; returns the bytes."""
        sent = 0

        def torn() -> Iterator[bytes]:
            """Blocks, and then an error."""
            nonlocal sent
            for block in blocks:
                yield block
                sent += len(block)
            raise _BrokenOff

        try:
            response = self.request("POST", path, torn(), headers)
        except _BrokenOff:
            return sent
        raise httpx.WriteError(f"answered with {response.status_code} before the upload's end")


def transient(response: httpx.Response) -> bool:
    """Returns True if a retry may succeed."""
    return response.status_code >= 500 or response.status_code in (409, 429)


class Ledger:
    """File with a JSON line for every fault, acknowledged job and range of results read.

    Any thread may write to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._lock = path.open("a", buffering=1), threading.Lock()

    def write(self, event: str, **what: Any) -> None:
        """Writes a line and flushes it."""
        line = json.dumps({"at": clock.now().isoformat(), "event": event, **what}, default=str)
        with self._lock:
            self._file.write(line + "\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
