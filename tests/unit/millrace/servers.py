"""Clients whose requests are answered in this process, a server whose connections break, and one
that counts them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

import httpx

from millrace import AsyncClient, Client
from tests.support.wait import PATIENCE_S

Handler = Callable[[httpx.Request], httpx.Response]
URL = "http://x"


def answered_by(handle: Handler, key: str | None = None, **options: Any) -> Client:
    """A client whose requests get what the function returns."""
    http = httpx.Client(transport=httpx.MockTransport(handle))
    return Client(URL, key, http_client=http, **options)


def async_answered_by(handle: Handler) -> AsyncClient:
    """The same, asynchronous."""
    return AsyncClient(URL, http_client=httpx.AsyncClient(transport=httpx.MockTransport(handle)))


class Recorder:
    """Gives each request the same answer, and keeps them."""

    def __init__(self, answer: object) -> None:
        self.seen: list[httpx.Request] = []
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.seen.append(request)
        return httpx.Response(200, json=self._answer)


class Quiet(BaseHTTPRequestHandler):
    """Keeps connections, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


class Breaking:
    """A real server of a job whose results are sent in pieces; between them the connection breaks,
    or the api answers 503 instead. generations: of the job at each answer; the last one stays."""

    def __init__(self, lines: list[bytes], pieces: list[int], generations: list[int]) -> None:
        self.asked: list[str] = []
        self._lines, self._pieces, self._generations = lines, pieces, generations
        self.server = HTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def positions(self) -> list[str]:
        """Offset of each read of results."""
        found = [path.partition("after=")[2].partition("&")[0] for path in self.asked]
        return list(filter(None, found))

    def _handler(breaking) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(Quiet):
            def do_GET(self) -> None:
                breaking.asked.append(self.path)
                if "/results" not in self.path:
                    body = b'{"state": "completed"}'
                    return self._send(200, body, len(body))
                count = breaking._pieces.pop(0)
                if count < 0:
                    body = b'{"retryable": true}'
                    return self._send(503, body, len(body))
                after = int(self.path.partition("after=")[2].partition("&")[0])
                rest = breaking._lines[after + 1 :]
                sent = b"".join(line + b"\n" for line in rest[:count])
                torn = rest[count][:5] if count < len(rest) else b""  # in the middle of a line
                self._send(200, sent + torn, sum(len(line) + 1 for line in rest))
                return None

            def _send(self, status: int, body: bytes, length: int) -> None:
                self.send_response(status)
                self.send_header("content-length", str(length))
                self.send_header("x-next-after", str(len(breaking._lines) - 1))
                self.send_header("x-complete", "true")
                left = breaking._generations
                self.send_header("x-generation", str(left.pop(0) if len(left) > 1 else left[0]))
                self.send_header("retry-after-ms", "0")
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = len(body) < length

        return Handler


@contextmanager
def breaking(lines: list[bytes], pieces: list[int], *generations: int) -> Iterator[Breaking]:
    """Serves until it is left."""
    made = Breaking(lines, pieces, list(generations))
    with served(made.server):
        yield made


@contextmanager
def served(server: HTTPServer) -> Iterator[None]:
    """Serves on a thread until it is left."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Crowded(ThreadingHTTPServer):
    """A server to which many connect at once."""

    request_queue_size = 64


class Meeting:
    """A real server that answers requests once so many have come."""

    def __init__(self, at_once: int) -> None:
        self.connections: list[object] = []  #: addresses of the clients, so far
        self._all_there = threading.Barrier(at_once, timeout=PATIENCE_S)
        self.server = Crowded(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def _handler(meeting) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(Quiet):
            def setup(self) -> None:
                super().setup()
                meeting.connections.append(self.client_address)

            def do_GET(self) -> None:
                meeting._all_there.wait()
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        return Handler


@contextmanager
def meeting(at_once: int) -> Iterator[Meeting]:
    """Serves until it is left."""
    made = Meeting(at_once)
    with served(made.server):
        yield made
