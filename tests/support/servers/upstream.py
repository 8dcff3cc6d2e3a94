"""A model that somebody else serves: a real HTTP server on loopback that does as a test says."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from time import monotonic
from typing import Any

from tests.support.servers.receiver import HttpServer, Received


@dataclass(frozen=True)
class Answer:
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


class Upstream(HttpServer):
    """received: every request in its order, those for /metrics apart. answer: decides; it may
    block, until `over` is set at the latest. metrics: text of /metrics; empty: not found."""

    protocol = "HTTP/1.1"

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(port, tls)
        self.received: list[Received] = []
        self.answer: Callable[[Received], Answer] = shout
        self.metrics = b""
        self.metrics_read = 0
        self.most_at_once = 0
        self._at_once = 0
        self._counting = threading.Lock()
        self.url = self.origin

    def bodies(self) -> list[Any]:
        return [json.loads(request.body) for request in self.received]

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._counting:
                self._at_once -= 1

    def respond(self, request: Received) -> Answer:
        if request.path == "/metrics":
            self.metrics_read += 1
            status = 200 if self.metrics else 404
            return Answer(None, status, {"connection": "close"}, self.metrics)
        with self._one_more():
            self.received.append(request)
            return self.answer(request)

    def send_body(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        if answer.reset:
            linger = struct.pack("ii", 1, 0)  # no goodbye
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.close_connection = True
            return
        step = 1 if answer.drip_s else max(1, len(answer.body))
        for n in range(0, len(answer.body), step):
            handler.wfile.write(answer.body[n : n + step])
            if answer.drip_s and self.over.wait(answer.drip_s):
                return


def serving(port: int = 0, tls: ssl.SSLContext | None = None) -> Upstream:
    return Upstream(port, tls)


def held_for(seconds: float, upstream: Upstream) -> None:
    """A request takes so long, and no longer than its server lives."""
    until_s = monotonic() + seconds
    upstream.over.wait(max(0.0, until_s - monotonic()))
