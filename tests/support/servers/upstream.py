"""A model that somebody else serves: a real HTTP server on loopback that does as a test says."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

from tests.support.servers.receiver import Received


@dataclass(frozen=True)
class Answer:
    """Response of an upstream."""

    value: Any = None  #: sent as JSON, unless raw is given
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    drip_s: float = 0.0  #: pause between two bytes, seconds
    reset: bool = False  #: the connection breaks after the head

    @property
    def body(self) -> bytes:
        return json.dumps(self.value).encode() if self.raw is None else self.raw


def shout(request: Received) -> Answer:
    """{"text": …} → {"results": [{"text": in capitals}]}"""
    return Answer({"results": [{"text": json.loads(request.body)["text"].upper()}]})


class Upstream:
    """received: every request in its order, those for /metrics apart. answer: decides, in the
    request's own thread; it may block, until `over` is set at the latest. metrics: text of
    /metrics; empty: not found."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Received] = []
        self.answer: Callable[[Received], Answer] = shout
        self.metrics = b""
        self.metrics_read = 0
        self.over = threading.Event()
        self.most_at_once = 0
        self._at_once = 0
        self._counting = threading.Lock()
        self.connections: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", port), self._handler())
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def bodies(self) -> list[Any]:
        return [json.loads(request.body) for request in self.received]

    def stop(self) -> None:
        """Breaks its connections, as a server that is killed does."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self.connections):
            with suppress(OSError):  # it had ended before
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        yield
        with self._counting:
            self._at_once -= 1

    def _handler(upstream) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                upstream.connections.add(self.connection)

            def finish(self) -> None:
                upstream.connections.discard(self.connection)
                super().finish()

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True  # who asked is gone

            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(self.path, headers, self.rfile.read(size))
                if self.path == "/metrics":
                    self._send_metrics()
                    return
                with upstream._one_more():
                    upstream.received.append(request)
                    answer = upstream.answer(request)
                self._send(answer)

            do_GET = do_PUT = do_POST  # noqa: N815

            def _send_metrics(self) -> None:
                upstream.metrics_read += 1
                status = 200 if upstream.metrics else 404
                self._send(Answer(None, status, {"connection": "close"}, upstream.metrics))

            def _send(self, answer: Answer) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                if answer.reset:
                    linger = struct.pack("ii", 1, 0)  # no goodbye
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.close_connection = True
                elif answer.drip_s:
                    for n in range(len(answer.body)):
                        self.wfile.write(answer.body[n : n + 1])
                        if upstream.over.wait(answer.drip_s):
                            return
                else:
                    self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        pass  # broken connections are what some tests are about


@contextmanager
def serving(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Upstream]:
    upstream = Upstream(port, tls)
    try:
        yield upstream
    finally:
        upstream.stop()


def held_for(seconds: float, upstream: Upstream) -> None:
    """A request takes so long, and no longer than its server lives."""
    until_s = monotonic() + seconds
    upstream.over.wait(max(0.0, until_s - monotonic()))
