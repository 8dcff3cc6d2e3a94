"""Connections: responses that are written past ASGI are those that ASGI's messages would make, and
requests may be sent before the response to the one before them has ended."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import Response
from fastapi.responses import StreamingResponse

from api.http.connections import connection
from api.http.connections.request_turns import NO_REFUSALS, RequestTurns
from api.http.responses import send_whole
from tests.support.servers.api_server import serving
from tests.support.wait import PATIENCE_S, eventually

CLOSE = "Connection: close\r\n"


class WholeResponses:
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
            with connection.client_disconnected(scope, receive) as left:
                await left
            self.left += 1
        chosen = send if scope["path"] == "/whole" else wrapped
        await send_whole(self.response, scope, receive, chosen)


def request(path: str, version: str = "1.1", more: str = "", body: bytes = b"{}") -> bytes:
    lines = f"POST {path} HTTP/{version}\r\nHost: localhost\r\n{more}"
    return f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def responses(port: int, *requests: bytes) -> bytes:
    """All that is received, until the server closes the connection."""
    with connected(port, b"".join(requests)) as client:
        return rest(client)


def connected(port: int, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    client.sendall(sent)
    return client


def rest(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(100_000), b""))


@pytest.mark.parametrize("size", [0, 10, 300_000])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_response_in_one_piece_is_what_asgi_sends(version: str, size: int) -> None:
    response = Response(b"x" * size, 429, {"Retry-After": "3"}, media_type="application/json")
    app = WholeResponses(response)
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
    sent = request("/whole"), request("/asgi"), request("/whole", more=CLOSE)
    with serving(WholeResponses(Response(b"answer")), lifespan="off") as port:
        received = responses(port, *sent)
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert received.count(b"answer") == 3


class SecondIsRefused(RequestTurns):
    """Refuses the second request of a connection, which it notes."""

    def __init__(self) -> None:
        super().__init__(NO_REFUSALS)
        self.connection: Any = None

    def receive(self, connection: Any, data: bytes) -> None:
        if self.connection is None:
            self.connection = connection
            super().receive(connection, data)
        else:
            self.timer_meanwhile = connection.timeout_keep_alive_task
            connection.write_refusal(429, b"content-length: 7\r\n\r\nrefused")


def test_a_connection_lives_on_while_its_request_waits_and_after_a_refusal() -> None:
    turns = SecondIsRefused()
    app = WholeResponses(Response(b"answer"))
    options: Any = {"lifespan": "off", "timeout_keep_alive": 3600, "headers": [("x-always", "a")]}
    with (
        serving(app, turns, **options) as port,
        connected(port, request("/whole")) as client,
    ):
        assert client.recv(1000).endswith(b"answer")
        first = eventually(lambda: turns.connection.timeout_keep_alive_task)
        client.sendall(request("/whole"))
        refused = client.recv(1000)
        assert (first.cancelled(), turns.timer_meanwhile) == (True, None)
        eventually(lambda: turns.connection.timeout_keep_alive_task)
    assert refused.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
    assert b"x-always: a\r\n" in refused
    assert refused.endswith(b"\r\n\r\nrefused")


def test_no_header_ends_in_the_middle() -> None:
    response = Response(b"answer")
    response.raw_headers.append((b"x-model", b"a\r\nset-cookie: b"))
    with serving(WholeResponses(response), lifespan="off") as port:
        received = responses(port, request("/whole", more=CLOSE))
    assert received == b""  # uvicorn refuses it, and closes the connection


@pytest.mark.parametrize("body", [b"{}", b"x" * 1_000_000], ids=["short", "long"])
@pytest.mark.parametrize("more", [b"", request("/whole")], ids=["one", "pipelined"])
def test_who_waits_learns_that_the_client_has_left(more: bytes, body: bytes) -> None:
    app = WholeResponses(Response(b"answer"))
    with serving(app, lifespan="off") as port:
        with connected(port, request("/wait", body=body) + more):
            eventually(lambda: app.waiting == 1)
            assert app.left == 0
        eventually(lambda: app.left == 1)


# -- requests that are sent before the response to the one before them has ended

STREAM = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
OTHER = b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"
WRONG = b"GET /other HTTP/1.1\r\n\r\n"


class Streams:
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


@pytest.fixture
def streams() -> Iterator[tuple[Streams, int]]:
    app = Streams()
    with serving(app, lifespan="off") as port:
        yield app, port
        eventually(lambda: app.ended == 1)


@pytest.mark.parametrize("more", [b"", OTHER, OTHER + STREAM], ids=["none", "one", "two"])
def test_a_client_that_leaves_ends_what_it_asked_for_first(
    streams: tuple[Streams, int], more: bytes
) -> None:
    app, port = streams
    with connected(port, STREAM + more) as client:
        assert client.recv(10) == b"HTTP/1.1 2"
        eventually(lambda: app.begun == 1)


def test_a_stream_before_another_request_is_broken_off(streams: tuple[Streams, int]) -> None:
    received = responses(streams[1], STREAM.replace(b"/stream", b"/abort") + OTHER)
    assert not received.endswith(b"0\r\n\r\n")  # the end of a whole response


def test_a_refused_request_writes_nothing_into_the_response_before_it(
    streams: tuple[Streams, int],
) -> None:
    app, port = streams
    with connected(port, STREAM) as client:
        eventually(lambda: app.begun == 1)
        client.sendall(WRONG)
        received = rest(client)
    assert received.count(b"HTTP/1.1") == 1
    assert b"400" not in received


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_of_http_1_0_gets_a_body_of_unknown_length_without_chunks(method: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        pieces = iter([b"one\n", b"", b"two\n"])
        await StreamingResponse(pieces, media_type="text/plain")(scope, receive, send)

    sent = f"{method} / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode()
    with serving(app, lifespan="off") as port:
        head, _, body = responses(port, sent).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == (b"one\ntwo\n" if method == "GET" else b"")
