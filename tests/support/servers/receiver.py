"""HTTP servers on loopback, and one that answers webhooks as a test says."""

import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]  #: by names in lower case
    body: bytes
    method: str = "POST"

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass(frozen=True)
class Reply:
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpServer:
    """A server from `with` to its end, when it breaks its connections, as one that is killed does.

    over: set at the end, for whoever holds an answer back until then."""

    protocol = "HTTP/1.0"

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.over = threading.Event()
        self.connections: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", port), _handler(self))
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.origin = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def respond(self, request: Received) -> Any:
        """Returns status, headers and body of the answer, in the request's own thread, where it may
        block; None: there is no answer."""
        raise NotImplementedError

    def send_body(self, handler: BaseHTTPRequestHandler, answer: Any) -> None:
        handler.wfile.write(answer.body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self.connections):
            with suppress(OSError):  # it had ended before
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # a full backlog costs each caller a second

    def handle_error(self, *request: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # broken connections are what some tests need
            super().handle_error(*request)


def _handler(server: HttpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = server.protocol
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            server.connections.add(self.connection)

        def finish(self) -> None:
            server.connections.discard(self.connection)
            super().finish()

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True  # who asked is gone

        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            answer = server.respond(Received(self.path, headers, body, self.command))
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            server.send_body(self, answer)

        do_GET = do_PUT = do_PATCH = do_POST  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class Receiver(HttpServer):
    """received: every request in its order. reply: decides the answer; it may block."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.received: list[Received] = []
        self.reply: Callable[[Received], Reply | None] = lambda request: Reply()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def of(self, path: str) -> list[Received]:
        return [request for request in self.received if request.path == path]

    def respond(self, request: Received) -> Reply | None:
        self.received.append(request)
        return self.reply(request)


def receiving(tls: ssl.SSLContext | None = None) -> Receiver:
    return Receiver(tls)
