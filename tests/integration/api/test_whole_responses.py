"""Responses that are written past ASGI are those that ASGI's messages would make."""

import socket
from typing import Any

import pytest
from fastapi import Response
from fastapi.responses import StreamingResponse

from api.http.connection import client_disconnected
from api.http.responses import send_whole
from tests.support.servers.api_server import serving
from tests.support.wait import PATIENCE_S, eventually

CLOSE = "Connection: close\r\n"


class App:
    """/whole and /asgi send the same response; /wait waits until its client has left."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.waiting = self.left = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def wrapped(message: Any) -> None:
            await send(message)

        while (await receive()).get("more_body"):
            pass
        if scope["path"] == "/wait":
            self.waiting += 1
            with client_disconnected(scope, receive) as left:
                await left
            self.left += 1
        chosen = send if scope["path"] == "/whole" else wrapped
        await send_whole(self.response, scope, receive, chosen)


def request(path: str, version: str = "1.1", more: str = "", body: bytes = b"{}") -> bytes:
    lines = f"POST {path} HTTP/{version}\r\nHost: localhost\r\n{more}"
    return f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def responses(port: int, *requests: bytes) -> bytes:
    """All that is received, until the server closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"".join(requests))
        while piece := client.recv(100_000):
            received += piece
    return received


@pytest.mark.parametrize("size", [0, 10, 300_000])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_response_in_one_piece_is_what_asgi_sends(version: str, size: int) -> None:
    response = Response(b"x" * size, 429, {"Retry-After": "3"}, media_type="application/json")
    app = App(response)
    with serving(app, lifespan="off", headers=[("cache-control", "no-store")]) as port:
        sent = [request(path, version, CLOSE) for path in ("/whole", "/asgi")]
        whole, asgi = (responses(port, one).partition(b"\r\n\r\n") for one in sent)
    assert whole[0].lower().split(b"\r\ndate")[0] == asgi[0].lower().split(b"\r\ndate")[0]
    heads = [sorted(head.lower().split(b"\r\n")) for head, *_ in (whole, asgi)]
    undated = [[line for line in head if not line.startswith(b"date:")] for head in heads]
    assert undated[0] == undated[1]
    assert {b"retry-after: 3", b"cache-control: no-store", b"connection: close"} <= set(undated[0])
    assert whole[2] == asgi[2] == b"x" * size


def test_requests_of_one_connection_are_answered_in_their_order() -> None:
    app = App(Response(b"answer"))
    with serving(app, lifespan="off") as port:
        received = responses(
            port, request("/whole"), request("/asgi"), request("/whole", more=CLOSE)
        )
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert received.count(b"answer") == 3


def test_no_header_ends_in_the_middle() -> None:
    response = Response(b"answer")
    response.raw_headers.append((b"x-model", b"a\r\nset-cookie: b"))
    with serving(App(response), lifespan="off") as port:
        received = responses(port, request("/whole", more=CLOSE))
    assert received == b""  # uvicorn refuses it, and closes the connection


@pytest.mark.parametrize("body", [b"{}", b"x" * 1_000_000], ids=["short", "long"])
@pytest.mark.parametrize("more", [b"", request("/whole")], ids=["one", "pipelined"])
def test_who_waits_learns_that_the_client_has_left(more: bytes, body: bytes) -> None:
    app = App(Response(b"answer"))
    with serving(app, lifespan="off") as port:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(request("/wait", body=body) + more)
            eventually(lambda: app.waiting == 1)
            assert app.left == 0
        eventually(lambda: app.left == 1)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_of_http_1_0_gets_a_body_of_unknown_length_without_chunks(method: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pieces = iter([b"one\n", b"", b"two\n"])
        await StreamingResponse(pieces, media_type="text/plain")(scope, receive, send)

    with serving(app, lifespan="off") as port:
        head, _, body = responses(
            port, f"{method} / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode()
        ).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == (b"one\ntwo\n" if method == "GET" else b"")
