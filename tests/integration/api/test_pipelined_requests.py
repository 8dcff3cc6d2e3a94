"""Requests that are sent before the response to the one before them has ended."""

import socket
from typing import Any

import pytest

from api.http import connection
from tests.support.servers.api_server import serving
from tests.support.wait import PATIENCE_S, eventually

STREAM = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
OTHER = b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"
WRONG = b"GET /other HTTP/1.1\r\n\r\n"


class App:
    """Streams that end when their client has gone; /abort breaks its connection off."""

    def __init__(self) -> None:
        self.begun, self.ended = 0, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/other":
            await send({"type": "http.response.body", "body": b"other"})
            return
        await send({"type": "http.response.body", "body": b"piece", "more_body": True})
        self.begun += 1
        if scope["path"] == "/abort":
            connection.break_off(scope)
        while (await receive())["type"] != "http.disconnect":
            pass
        self.ended += 1


@pytest.mark.parametrize("more", [b"", OTHER, OTHER + STREAM], ids=["none", "one", "two"])
def test_a_client_that_leaves_ends_what_it_asked_for_first(more: bytes) -> None:
    app = App()
    with serving(app, lifespan="off") as port:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(STREAM + more)
            assert client.recv(10) == b"HTTP/1.1 2"
            eventually(lambda: app.begun == 1)
        eventually(lambda: app.ended == 1)


def test_a_stream_before_another_request_is_broken_off() -> None:
    app = App()
    with serving(app, lifespan="off") as port:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(STREAM.replace(b"/stream", b"/abort") + OTHER)
            received = b""
            while piece := client.recv(1000):
                received += piece
        assert not received.endswith(b"0\r\n\r\n")  # the end of a whole response
        eventually(lambda: app.ended == 1)


def test_a_refused_request_writes_nothing_into_the_response_before_it() -> None:
    app = App()
    with serving(app, lifespan="off") as port:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(STREAM)
            eventually(lambda: app.begun == 1)
            client.sendall(WRONG)
            received = b""
            while piece := client.recv(1000):
                received += piece
        assert received.count(b"HTTP/1.1") == 1
        assert b"400" not in received
        eventually(lambda: app.ended == 1)
