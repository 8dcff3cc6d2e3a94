"""Streams over a real socket and a real Redis: what comes, in which order, and how they end."""

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from anthropic._streaming import SSEDecoder as AnthropicDecoder
from openai._streaming import SSEDecoder as OpenAiDecoder

from api.gateway.streaming import call_stream, event_stream
from api.gateway.streaming.inbox import DeltaInbox
from jobs.calls.messages import Call, ChoiceDelta, Reply, pack_replies
from jobs.calls.records import CallRecord, record_key
from tests.integration.api.generation.conftest import Stage, driving
from tests.support.generation.generation_worker import answering, completion
from tests.support.wait import PATIENCE_S, eventually

CONVERSATION = {"messages": [{"role": "user", "content": "x"}]}
CHAT = {"model": "m", "stream": True, **CONVERSATION}
CALL = {"model": "m", "stream": True, "input": CONVERSATION}
WORDS = ["one", " two", " three"]


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    """(name, data) of each event, as they come; comments as ("", text)."""
    name = ""
    for line in response.iter_lines():
        if line.startswith(":"):
            yield "comment", line
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield name, data if data == "[DONE]" else json.loads(data)
            name = ""


def streamed(
    stage: Stage, path: str, body: dict[str, Any], drive: Callable[[], object]
) -> list[tuple[str, Any]]:
    """All events of a stream, which the worker drives meanwhile."""
    with driving(drive), stage.stream(path, body) as response:
        return list(events(response))


def content(found: list[tuple[str, Any]]) -> str:
    deltas = (data["choices"][0]["delta"] for _, data in found if data != "[DONE]")
    return "".join(delta.get("content") or "" for delta in deltas)


def is_closed(client: socket.socket) -> bool:
    """Reads what comes; returns True once the connection has ended."""
    try:
        return client.recv(1 << 20) == b""
    except ConnectionResetError:
        return True


def test_tokens_come_before_the_call_has_ended(stage: Stage) -> None:
    def drive() -> None:
        call = stage.worker.take()
        assert call.stream
        stage.worker.push(call, ChoiceDelta(0, "one", (7,)))
        eventually(lambda: seen)
        stage.worker.push(call, ChoiceDelta(0, " two", (8, 9), (), "stop"))
        stage.worker.reply(call, completion("one two", 3))

    seen: list[tuple[str, Any]] = []
    with driving(drive), stage.stream("/infer", CALL) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"].startswith("req_")
        seen += events(response)
    names = [name for name, _ in seen]
    assert names == ["tokens", "tokens", "done"]
    assert seen[0][1] == {"choice": 0, "index": 0, "text": "one", "tokens": [7]}
    assert seen[1][1] == {
        "choice": 0,
        "index": 1,
        "text": " two",
        "tokens": [8, 9],
        "finish_reason": "stop",
    }
    done = seen[2][1]
    assert done["usage"]["completion_tokens"] == 3
    assert (done["model"], done["version"]) == ("m", "1")
    assert {"queue_ms", "prefill_ms", "decode_ms", "ttft_ms", "total_ms"} <= done["timing"].keys()


def test_many_streams_at_once_each_get_their_own_tokens(stage: Stage) -> None:
    def ask(n: int) -> str:
        body = {**CHAT, "messages": [{"role": "user", "content": f"{n}"}]}
        with stage.stream("/v1/chat/completions", body) as response:
            assert response.status_code == 200
            return content(list(events(response)))

    with answering(stage.worker, WORDS), ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(100))) == ["one two three"] * 100
    eventually(lambda: stage.in_flight == 0)


@pytest.mark.parametrize("number", [0, 2])
def test_a_gap_is_an_error_event_and_never_silence(stage: Stage, number: int) -> None:
    def drive() -> None:
        call = stage.worker.take()
        stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
        stage.worker.push(call, ChoiceDelta(0, "two", (2,)), number=number)
        eventually(lambda: stage.worker.cancelled() == [call.id])

    found = streamed(stage, "/v1/chat/completions", CHAT, drive)
    assert content(found[:-1]) == "one"
    assert found[-1][1]["error"]["code"] == "stream_broken"


def test_a_delta_that_was_lost_on_its_way_is_read_from_the_log(stage: Stage) -> None:
    """A connection to Redis that is cut takes the messages along that are on it."""

    def drive() -> None:
        call = stage.worker.take()
        stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
        stage.worker.push(replace(call, stream=False), ChoiceDelta(0, " two", (2,)))
        stage.worker.push(call, ChoiceDelta(0, " three", (3,), (), "stop"))
        stage.worker.reply(call, completion("one two three", 3))

    found = streamed(stage, "/v1/chat/completions", CHAT, drive)
    assert content(found) == "one two three"
    assert found[-1][1] == "[DONE]"


def test_an_end_that_was_lost_on_its_way_is_read_from_the_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.gateway.gateway._WATCH_S", 0.02)

    def drive() -> None:
        call, keys = stage.worker.take(), stage.worker.lanes.keys
        stage.worker.push(call, ChoiceDelta(0, "one", (1,), (), "stop"))
        timing = {"queue_ms": 1.0, "ttft_ms": 3.0, "deltas": 1}
        output = orjson.dumps(completion("one", 1))
        reply = Reply(call.id, output, None, call.size, timing)
        stage.redis.rpush(keys.log(call.id), pack_replies([reply], call.reply_to))
        stage.redis.hdel(keys("calls"), call.id)

    found = streamed(stage, "/v1/chat/completions", CHAT, drive)
    assert content(found) == "one"
    assert found[-1][1] == "[DONE]"


def test_a_stream_that_its_client_leaves_has_a_timeline(stage: Stage) -> None:
    def drive() -> Call:
        call = stage.worker.take()
        stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
        return call

    with driving(drive) as driven, stage.stream("/infer", CALL) as response:
        next(response.iter_lines())
    call = driven.result()
    packed: Any = eventually(lambda: stage.redis.hget(str(record_key(call.id)), call.id))
    record = CallRecord.unpack(packed)
    assert record.outcome == "cancelled"
    assert record.generated
    assert len(record.token_ms) == 1
    page = httpx.get(f"{stage.url}/dashboard/calls/{call.id}", headers=stage.headers)
    assert page.status_code == 200, page.text
    assert "1 marks" in page.text


def test_an_end_before_the_last_delta_is_an_error(stage: Stage) -> None:
    def drive() -> None:
        call = stage.worker.take()
        stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
        stage.worker.reply(call, completion("one two", 2), deltas=2)

    found = streamed(stage, "/infer", CALL, drive)
    assert [name for name, _ in found] == ["tokens", "error"]
    assert found[1][1]["code"] == "stream_broken"


def test_an_error_after_tokens_is_an_event(stage: Stage) -> None:
    def drive() -> None:
        call = stage.worker.take()
        stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
        stage.worker.fail(call, "engine_error", "it broke")

    found = streamed(stage, "/infer", CALL, drive)
    assert found[-1][0] == "error"
    assert found[-1][1]["detail"] == "it broke"
    assert found[-1][1]["call_id"].startswith("call_")


def test_an_error_before_any_token_has_a_status_of_its_own(stage: Stage) -> None:
    def drive() -> None:
        stage.worker.fail(stage.worker.take(), "invalid_input", "the prompt is too long")

    with driving(drive):
        found = stage.post("/v1/chat/completions", CHAT)
    assert found.status_code == 400
    assert found.json()["error"]["message"] == "the prompt is too long"


@pytest.mark.parametrize("tokens", [0, 1], ids=["in prefill", "in decode"])
@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
def test_a_client_that_leaves_takes_its_call_back(stage: Stage, tokens: int, half: bool) -> None:
    body = json.dumps(CHAT).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        f"{stage.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", stage.port), timeout=PATIENCE_S) as client:
        client.sendall(head.encode() + body)
        call = stage.worker.take()
        for _ in range(tokens):
            stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
            assert b"200 OK" in client.recv(1 << 16)
        if half:
            client.shutdown(socket.SHUT_WR)
        else:
            client.close()
        eventually(lambda: stage.worker.cancelled() == [call.id])
    eventually(lambda: stage.in_flight == 0)


def test_a_reader_that_stops_reading_is_cut_and_its_call_taken_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokens fill the buffers of the connection, then wait in the inbox."""

    class Impatient(DeltaInbox):
        def __init__(self, deadlines: Any, slow_reader_s: float) -> None:
            super().__init__(deadlines, 0.2)

    monkeypatch.setattr(call_stream, "DeltaInbox", Impatient)
    body = json.dumps(CHAT).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        f"{stage.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", stage.port), timeout=PATIENCE_S) as client:
        client.sendall(head.encode() + body)
        call = stage.worker.take()

        def cut() -> bool:
            stage.worker.push(call, ChoiceDelta(0, "x" * 500_000, (1,)))
            return stage.worker.cancelled() == [call.id]

        eventually(cut)
        eventually(lambda: is_closed(client))
    eventually(lambda: stage.in_flight == 0)


def test_silent_streams_have_comments(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(event_stream, "STATUS_WITHIN_S", 0.05)
    with stage.stream("/infer", {**CALL, "first_token_ms": 1000}) as response:
        found = list(events(response))
    assert (found[0], found[-1][0]) == (("comment", ": keep-alive"), "error")
    assert found[-1][1]["detail"] == "no token came within 1000 ms"
    assert found[-1][1]["code"] == "deadline_passed"


def test_clients_of_openai_and_anthropic_read_past_the_comments_of_a_silent_stream(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    raw = bytearray()

    def drive() -> None:
        call = stage.worker.take()
        stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
        eventually(lambda: event_stream.KEEP_ALIVE in raw)
        stage.worker.reply(call, completion("one", 1))

    with driving(drive), stage.stream("/v1/chat/completions", CHAT) as response:
        for piece in response.iter_bytes():
            raw += piece
    for decoder in (OpenAiDecoder(), AnthropicDecoder()):
        *chunks, last = decoder.iter_bytes(iter([bytes(raw)]))
        assert [one.json()["object"] for one in chunks] == ["chat.completion.chunk"] * len(chunks)
        assert (len(chunks) >= 2, last.data) == (True, "[DONE]")


def test_silence_between_tokens_ends_a_stream(stage: Stage) -> None:
    def drive() -> str:
        call = stage.worker.take()
        stage.worker.push(call, ChoiceDelta(0, "one", (1,)))
        eventually(lambda: stage.worker.cancelled() == [call.id])
        return call.id

    found = streamed(stage, "/infer", {**CALL, "idle_ms": 300}, drive)
    assert found[-1][1]["detail"] == "no more came within 300 ms"


def test_the_total_time_ends_a_stream_that_goes_on(stage: Stage) -> None:
    def drive() -> None:
        call = stage.worker.take()

        def push() -> bool:
            stage.worker.push(call, ChoiceDelta(0, "x", (1,)))
            return stage.worker.cancelled() == [call.id]

        eventually(push)

    found = streamed(stage, "/infer", {**CALL, "timeout_ms": 2000}, drive)
    assert found[-1][1]["detail"] == "no answer within 2000 ms"
