"""Streams of a whole platform: api, Redis, worker and a model whose tokens are words."""

import asyncio
import json
import socket
from typing import Any

import anthropic
import httpx
import openai
import pytest

from ops.supervisor.platform import Platform
from tests.support.clients import events
from tests.support.models.entries import model
from tests.support.packages import anthropic_ended, openai_batch
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

CHATTER = model("chatter", "echo_chat", target_ttft_ms=60000, step_ms=2.0, sequences=256)
SLOW = {"step_ms": 50.0, "sequences": 4, "blocks": 1024}
MODELS = CHATTER + model("slow", "echo_chat", target_ttft_ms=60000, **SLOW)
PLATFORM = CHATTING
SAID = "one two three four five"
MESSAGES: list[Any] = [{"role": "user", "content": SAID}]


def text_of(chunks: Any) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


def test_a_stream_says_what_the_whole_answer_says(chat: openai.OpenAI) -> None:
    whole = chat.chat.completions.create(model="chatter", messages=MESSAGES)
    assert (whole.choices[0].message.content or "").split() == SAID.split()
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    asked: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(chat.chat.completions.create(model="chatter", messages=MESSAGES, **asked))
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_each_choice_is_streamed(chat: openai.OpenAI) -> None:
    texts = {0: "", 1: "", 2: ""}
    for chunk in chat.chat.completions.create(model="chatter", messages=MESSAGES, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert [text.split() for text in texts.values()] == [SAID.split()] * 3


def test_completions_are_whole_and_streamed(chat: openai.OpenAI) -> None:
    whole = chat.completions.create(model="chatter", prompt=SAID, max_tokens=3)
    assert whole.choices[0].finish_reason == "length"
    stream = chat.completions.create(model="chatter", prompt=SAID, max_tokens=3, stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_the_native_stream_ends_with_usage_and_timing(http: httpx.Client) -> None:
    body = {"model": "chatter", "stream": True, "input": {"messages": MESSAGES}}
    *deltas, done = events(http.post("/infer", json=body).text.splitlines())
    assert done.name == "done"
    assert done.data["usage"]["completion_tokens"] == 5
    timing = done.data["timing"]
    assert {"ttft_ms", "itl_ms", "queue_ms", "prefill_ms", "decode_ms"} <= timing.keys()
    assert timing["deltas"] == len(deltas)


def test_anthropics_client_gets_the_same_text(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "chatter", "max_tokens": 50, "messages": MESSAGES}
    with claude.messages.stream(**asked) as stream:
        start = next(iter(stream))
        assert start.type == "message_start"
        assert start.message.usage.input_tokens == 5
        assert "".join(stream.text_stream).split() == SAID.split()
        assert stream.get_final_message().usage.output_tokens == 5


def test_two_hundred_streams_at_once_each_get_their_own_text(platform: Platform, key: str) -> None:
    async def ask(client: openai.AsyncOpenAI, n: int) -> str:
        said = f"stream {n} has its own words " + " ".join(f"w{n}-{m}" for m in range(20))
        stream = await client.chat.completions.create(
            model="chatter", messages=[{"role": "user", "content": said}], stream=True
        )
        parts = [c.delta.content or "" async for chunk in stream for c in chunk.choices]
        assert "".join(parts).split() == said.split()
        return said

    async def ask_all() -> int:
        limits = httpx.Limits(max_connections=200)
        http = httpx.AsyncClient(limits=limits, timeout=PATIENCE_S)
        async with openai.AsyncOpenAI(
            base_url=f"{platform.url}/v1", api_key=key, max_retries=0, http_client=http
        ) as client:
            return len(set(await asyncio.gather(*(ask(client, n) for n in range(200)))))

    assert asyncio.run(ask_all()) == 200


@pytest.mark.parametrize("half", [False, True], ids=["closed", "half-closed"])
def test_clients_that_leave_make_room_for_others(
    platform: Platform, key: str, chat: openai.OpenAI, half: bool
) -> None:
    """Those who leave would hold every place of the model for longer than others wait."""
    body = {"model": "slow", "messages": MESSAGES, "stream": True, "min_tokens": 4000}
    body["max_tokens"] = 4000
    raw = json.dumps(body).encode()
    host = platform.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    clients = [
        socket.create_connection((host[0], int(host[1])), timeout=PATIENCE_S) for _ in range(4)
    ]
    try:
        for client in clients:
            client.sendall(head.encode() + raw)
        for client in clients:
            assert b"200 OK" in client.recv(1 << 16)
        for client in clients:
            client.shutdown(socket.SHUT_WR) if half else client.close()
        patient = chat.with_options(timeout=PATIENCE_S)
        answer = patient.chat.completions.create(model="slow", messages=MESSAGES)
        assert (answer.choices[0].message.content or "").split() == SAID.split()
    finally:
        for client in clients:
            client.close()


def test_a_prompt_that_leaves_no_room_is_refused_with_its_status(chat: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(openai.BadRequestError, match="9000 tokens"):
        list(chat.chat.completions.create(model="chatter", messages=messages, stream=True))


def test_batches_of_all_three_apis_are_answered(
    chat: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    asked = {"/v1/chat/completions": {"messages": MESSAGES}, "/v1/completions": {"prompt": SAID}}
    for endpoint, body in asked.items():
        [found], _ = openai_batch(chat, endpoint, {"model": "chatter", **body})
        choice = found["response"]["body"]["choices"][0]
        said = choice["message"]["content"] if "message" in choice else choice["text"]
        assert said.split() == SAID.split()
    params: Any = {"model": "chatter", "max_tokens": 9, "messages": MESSAGES}
    batch = claude.messages.batches.create(requests=[{"custom_id": "a", "params": params}])
    anthropic_ended(claude, batch.id)
    [result] = claude.messages.batches.results(batch.id)
    assert result.result.type == "succeeded"
    assert result.result.message.usage.output_tokens == 5
