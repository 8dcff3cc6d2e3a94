"""Streams over a real socket and a real Redis: what comes, in which order, and how they end."""

import socket
from collections.abc import Callable
from contextlib import suppress
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
from tests.support.clients import Event, events, repeated
from tests.support.generation.generation_worker import completion
from tests.support.wait import eventually

CONVERSATION = {"messages": [{"role": "user", "content": "x"}]}
CHAT = {"model": "m", "stream": True, **CONVERSATION}
CALL = {"model": "m", "stream": True, "input": CONVERSATION}
PATH = "/v1/chat/completions"


def streamed(
    stage: Stage, path: str, body: dict[str, Any], drive: Callable[[], object]
) -> list[Event]:
    """All events of a stream, which the worker drives meanwhile."""
    with driving(drive), stage.stream(path, body) as response:
        return list(events(response.iter_lines()))


def content(found: list[Event]) -> str:
    deltas = (event.data["choices"][0]["delta"] for event in found if event.data)
    return "".join(delta.get("content") or "" for delta in deltas)


def test_tokens_come_before_the_call_has_ended(stage: Stage) -> None:
    def drive() -> None:
        call = stage.worker.take()
        assert call.stream
        stage.worker.push(call, ChoiceDelta(0, "one", (7,)))
        eventually(lambda: seen)
        stage.worker.push(call, ChoiceDelta(0, " two", (8, 9), (), "stop"))
        stage.worker.reply(call, completion("one two", 3))

    seen: list[Event] = []
    with driving(drive), stage.stream("/infer", CALL) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-request-id"].startswith("req_")
        seen += events(response.iter_lines())
    first = {"choice": 0, "index": 0, "text": "one", "tokens": [7]}
    last = {"index": 1, "text": " two", "tokens": [8, 9], "finish_reason": "stop"}
    assert [event.name for event in seen] == ["tokens", "tokens", "done"]
    assert [event.data for event in seen[:2]] == [first, first | last]
    done = seen[2].data
    assert done["usage"]["completion_tokens"] == 3
    assert (done["model"], done["version"]) == ("m", "1")
    assert {"queue_ms", "prefill_ms", "decode_ms", "ttft_ms", "total_ms"} <= done["timing"].keys()


@pytest.mark.parametrize("number", [0, 2])
def test_a_gap_is_an_error_event_and_never_silence(stage: Stage, number: int) -> None:
    def drive() -> None:
        call = stage.begin()
        stage.worker.push(call, ChoiceDelta(0, "two", (2,)), number=number)
        eventually(lambda: stage.worker.cancelled() == [call.id])

    found = streamed(stage, PATH, CHAT, drive)
    assert content(found[:-1]) == "one"
    assert found[-1].data["error"]["code"] == "stream_broken"


def test_a_delta_that_was_lost_on_its_way_is_read_from_the_log(stage: Stage) -> None:
    """A connection to Redis that is cut takes the messages along that are on it."""

    def drive() -> None:
        call = stage.begin()
        stage.worker.push(replace(call, stream=False), ChoiceDelta(0, " two", (2,)))
        stage.worker.push(call, ChoiceDelta(0, " three", (3,), (), "stop"))
        stage.worker.reply(call, completion("one two three", 3))

    found = streamed(stage, PATH, CHAT, drive)
    assert content(found) == "one two three"
    assert found[-1].data is None


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

    found = streamed(stage, PATH, CHAT, drive)
    assert content(found) == "one"
    assert found[-1].data is None


def test_a_stream_that_its_client_leaves_has_a_timeline(stage: Stage) -> None:
    with driving(stage.begin) as driven, stage.stream("/infer", CALL) as response:
        next(response.iter_lines())
    call = driven.result()
    packed: Any = eventually(lambda: stage.redis.hget(str(record_key(call.id)), call.id))
    record = CallRecord.unpack(packed)
    assert (record.outcome, bool(record.generated), len(record.token_ms)) == ("cancelled", True, 1)
    page = httpx.get(f"{stage.url}/dashboard/calls/{call.id}", headers=stage.headers)
    assert page.status_code == 200, page.text
    assert "1 marks" in page.text


def test_an_end_before_the_last_delta_is_an_error(stage: Stage) -> None:
    output, reply = completion("one two", 2), stage.worker.reply
    found = streamed(stage, "/infer", CALL, lambda: reply(stage.begin(), output, deltas=2))
    assert [event.name for event in found] == ["tokens", "error"]
    assert found[1].data["code"] == "stream_broken"


def test_an_error_after_tokens_is_an_event(stage: Stage) -> None:
    found = streamed(stage, "/infer", CALL, stage.break_off)
    assert (found[-1].name, found[-1].data["detail"]) == ("error", "it broke")
    assert found[-1].data["call_id"].startswith("call_")


def test_an_error_before_any_token_has_a_status_of_its_own(stage: Stage) -> None:
    why = "invalid_input", "the prompt is too long"
    with driving(lambda: stage.worker.fail(stage.worker.take(), *why)):
        found = stage.post(PATH, CHAT)
    assert found.status_code == 400
    assert found.json()["error"]["message"] == "the prompt is too long"


@pytest.mark.parametrize("tokens", [0, 1], ids=["in prefill", "in decode"])
@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
def test_a_client_that_leaves_takes_its_call_back(stage: Stage, tokens: int, half: bool) -> None:
    with stage.asking(PATH, CHAT) as client:
        call = stage.begin() if tokens else stage.worker.take()
        assert not tokens or b"200 OK" in client.recv(1 << 16)
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
    with stage.asking(PATH, CHAT) as client:
        call = stage.worker.take()

        def cut() -> bool:
            stage.worker.push(call, ChoiceDelta(0, "x" * 500_000, (1,)))
            return stage.worker.cancelled() == [call.id]

        eventually(cut)
        with suppress(ConnectionResetError):
            while client.recv(1 << 20):
                pass
    eventually(lambda: stage.in_flight == 0)


def test_silent_streams_have_comments(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(event_stream, "STATUS_WITHIN_S", 0.0)
    lines: list[str] = []

    def drive() -> None:
        eventually(lambda: lines)
        stage.break_off()

    with driving(drive), stage.stream("/infer", CALL) as response:
        for line in response.iter_lines():
            lines.append(line)  # noqa: PERF402 - as it comes
    assert lines[0] == ": keep-alive"


def test_clients_of_openai_and_anthropic_read_past_the_comments_of_a_silent_stream(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    raw = bytearray()

    def drive() -> None:
        call = stage.begin()
        eventually(lambda: event_stream.KEEP_ALIVE in raw)
        stage.worker.reply(call, completion("one", 1))

    with driving(drive), stage.stream(PATH, CHAT) as response:
        for piece in response.iter_bytes():
            raw += piece
    for decoder in (OpenAiDecoder(), AnthropicDecoder()):
        *chunks, last = decoder.iter_bytes(iter([bytes(raw)]))
        assert [one.json()["object"] for one in chunks] == ["chat.completion.chunk"] * len(chunks)
        assert len({one.json()["id"] for one in chunks}) == 1
        assert (len(chunks) >= 2, last.data) == (True, "[DONE]")


def test_silence_ends_a_stream_before_its_tokens_and_between_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(event_stream, "STATUS_WITHIN_S", 0.0)
        *_, last = streamed(stage, "/infer", {**CALL, "first_token_ms": 300}, lambda: None)
    assert (last.name, last.data["code"]) == ("error", "deadline_passed")
    assert last.data["detail"] == "no token came within 300 ms"

    def drive() -> None:
        call = stage.begin()
        eventually(lambda: stage.worker.cancelled() == [call.id])

    found = streamed(stage, "/infer", {**CALL, "idle_ms": 300}, drive)
    assert found[-1].data["detail"] == "no more came within 300 ms"


def test_the_total_time_ends_a_stream_that_goes_on(stage: Stage) -> None:
    taken: list[Call] = []

    def push(_: int) -> None:
        if call := stage.worker.take_if_any():
            taken.append(call)
        for call in taken:
            stage.worker.push(call, ChoiceDelta(0, "x", (1,)))

    def found() -> list[Event]:
        """Events of a call that was taken in time, as on a busy machine not each is."""
        with stage.stream("/infer", {**CALL, "timeout_ms": 1000}) as response:
            found = list(events(response.iter_lines()))
        return found if found and found[0].name == "tokens" else []

    with repeated(push, callers=1, pause_s=0.01):
        assert eventually(found)[-1].data["detail"] == "no answer within 1000 ms"
        eventually(lambda: {call.id for call in taken} <= {*stage.worker.cancelled()})
