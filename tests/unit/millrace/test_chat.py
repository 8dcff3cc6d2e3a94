"""Streams of a conversation go on after the last event, at any api, however their chunks fall."""

import asyncio
import time
from collections.abc import Callable

import httpx
import orjson
import pytest

from millrace import APIError, APIStatusError, ChatChunk, Client, StreamError
from millrace.wire import Events, Lines
from tests.unit.millrace.servers import answered_by, async_answered_by

ID = "call_01kajf7q5rf0h8zq2m4w6y8a0b"
PATH = "/v1/chat/completions"


def event(n: int, text: str = "", **data: object) -> bytes:
    chunk = {"n": n, "choices": [{"delta": {"content": text}}], **data}
    return b"data: %b\nid: %b/%d\n\n" % (orjson.dumps(chunk), ID.encode(), n)


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Response that breaks off."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from self.pieces
        raise httpx.ReadError("gone")

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        for piece in self.pieces:
            yield piece
        raise httpx.ReadError("gone")


class Api:
    """An api that gives these answers, and lists what it was asked."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.url.path} {request.headers.get('Last-Event-ID', '')}".strip())
        return self.answers.pop(0)


def interrupted() -> Api:
    return Api(
        httpx.Response(200, stream=Broken(event(0, "a"), event(1, "b"), b"data: {")),
        httpx.Response(503, json={}),
        httpx.Response(200, content=event(1, error={"code": "api_stopping"})),
        httpx.Response(200, content=event(2, "c") + b"data: [DONE]\nid: x\n\n"),
    )


def client_of(*answers: httpx.Response) -> tuple[Client, Api]:
    api = Api(*answers)
    return answered_by(api), api


def read(api: Api) -> list[ChatChunk]:
    return list(answered_by(api).chat.stream("m", []))


def read_asynchronously(api: Api) -> list[ChatChunk]:
    async def chunks() -> list[ChatChunk]:
        return [chunk async for chunk in async_answered_by(api).chat.stream("m", [])]

    return asyncio.run(chunks())


@pytest.mark.parametrize("read_all", [read, read_asynchronously])
def test_a_chat_goes_on_after_its_connection_was_lost(
    pauses: list[float], read_all: Callable[[Api], list[ChatChunk]]
) -> None:
    api = interrupted()
    chunks = read_all(api)
    assert [chunk["n"] for chunk in chunks] == [0, 1, 2]
    assert "".join(chunk.text for chunk in chunks) == "abc"
    assert api.asked == [PATH, *[f"{PATH} {ID}/1"] * 3]


def test_a_chat_is_answered_whole_or_cancelled_where_it_is_left() -> None:
    answer = {"id": "x", "choices": [{"message": {"content": "hello"}}]}
    client, api = client_of(httpx.Response(200, json=answer))
    assert client.chat.create("m", [{"role": "user", "content": "hi"}]).text == "hello"
    assert api.asked == [PATH]
    client, api = client_of(
        httpx.Response(200, content=event(0) + event(1)), httpx.Response(200, json={})
    )
    chunks = client.chat.stream("m", [])
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert api.asked == [PATH, f"/calls/{ID}/cancel"]


def test_an_error_ends_a_chat() -> None:
    error = {"code": "deadline_passed", "message": "too late"}
    client, api = client_of(httpx.Response(200, content=event(0) + event(0, error=error)))
    chunks = client.chat.stream("m", [])
    assert next(chunks)["n"] == 0
    with pytest.raises(StreamError, match="too late") as found:
        next(chunks)
    assert found.value.code == "deadline_passed"
    assert len(api.asked) == 1


def test_a_stream_that_was_not_begun_is_not_begun_twice(pauses: list[float]) -> None:
    refused = httpx.Response(404, json={"detail": "no such model"})
    client, _ = client_of(refused)
    with pytest.raises(APIStatusError):
        next(client.chat.stream("m", []))
    busy = httpx.Response(503, json={"detail": "no worker", "retryable": True})
    client, api = client_of(busy, httpx.Response(200, content=b"data: [DONE]\nid: x\n\n"))
    said: list[APIError] = []
    assert list(client.chat.stream("m", [], on_retry=said.append)) == []
    assert [error.message for error in said] == ["no worker"]
    assert len(api.asked) == 2


BODY = b"a\n\nbcd\r\n" + "\u2028".encode() + b"\nend"
SPLIT = [b"a", b"", b"bcd\r", "\u2028".encode(), b"end"]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("body", "found"), [(BODY, SPLIT), (BODY + b"\n", SPLIT), (b"", [])])
def test_a_body_is_split_at_newlines_alone(body: bytes, found: list[bytes], size: int) -> None:
    lines = Lines()
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    assert [line for chunk in chunks for line in lines.feed(chunk)] + lines.end() == found


def test_an_event_is_whole_or_is_not_there_and_a_long_line_costs_as_much_as_short_ones() -> None:
    lines = ["data: 1", "id: a/0", "", ": keep-alive", "", "event: x", "data: 2", "id: a/1"]
    events = Events()
    assert list(filter(None, map(events.feed, lines))) == [("a/0", "1")]
    lines, chunk, count = Lines(), b"x" * 4096, 20_000
    began_s = time.process_time()
    assert not any(lines.feed(chunk) for _ in range(count))
    assert len(lines.feed(b"\n")[0]) == count * len(chunk)
    assert time.process_time() - began_s < 5  # copying it for each chunk takes minutes
