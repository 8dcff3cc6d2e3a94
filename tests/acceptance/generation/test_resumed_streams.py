"""Streams whose api is killed, or stopped: the other api goes on with them."""

import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from jobs.calls.keys import Keys
from ops.processes.children import Child
from ops.supervisor.platform import Platform
from tests.support.children import second_api
from tests.support.clients import Event, events
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.wait import PATIENCE_S, eventually

MODELS = model(
    "talk", "echo_chat", target_ttft_ms=60000, step_ms=20.0, context_tokens=65536, blocks=65536
)
PLATFORM = GENERATING
WORDS = 400
CHAT = {
    "model": "talk",
    "stream": True,
    "temperature": 0,
    "messages": [{"role": "user", "content": " ".join(f"w{n}" for n in range(WORDS))}],
}
PATH = "/v1/chat/completions"


@pytest.fixture
def second(platform: Platform) -> Iterator[Child]:
    with second_api(platform) as child:
        yield child


def read(response: httpx.Response) -> Iterator[Event]:
    return events(response.iter_lines())


def words(chunks: list[Any]) -> list[str]:
    pieces = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    return "".join(piece or "" for piece in pieces).split()


def open_calls(store: "redis.Redis") -> int:
    count: Any = store.hlen(Keys("talk@1")("calls"))
    return int(count)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_the_other_api_goes_on_with_a_stream(
    platform: Platform, second: Child, number: signal.Signals
) -> None:
    headers, chunks, last = {"X-Millrace-Resume-Within": "120"}, list[Any](), ""
    url = second.name + PATH
    stream = httpx.stream("POST", url, json=CHAT, headers=headers, timeout=PATIENCE_S)
    try:
        with stream as response:
            for id, _, chunk in read(response):
                last = id
                if "error" in (chunk or {}):
                    assert chunk["error"]["code"] == "api_stopping"
                    break
                chunks.append(chunk)
                if len(chunks) == 20 and second.process:
                    second.process.send_signal(number)
    except httpx.TransportError:
        assert number == signal.SIGKILL
    assert 0 < len(words(chunks)) < WORDS
    headers = {"Last-Event-ID": last}
    url = platform.url + PATH
    with httpx.stream("POST", url, json=CHAT, headers=headers, timeout=PATIENCE_S) as response:
        rest = [chunk for _, _, chunk in read(response)]
    assert rest.pop() is None
    assert words(chunks + rest) == [f"w{n}" for n in range(WORDS)]
    assert len({chunk["id"] for chunk in chunks + rest}) == 1


def test_a_call_of_a_dead_api_that_nobody_comes_back_for_is_dropped(
    second: Child, store: "redis.Redis"
) -> None:
    body = {**CHAT, "min_tokens": 60_000, "max_tokens": 60_000}
    headers = {"X-Millrace-Resume-Within": "1"}
    with httpx.stream(
        "POST", second.name + PATH, json=body, headers=headers, timeout=PATIENCE_S
    ) as response:
        first = read(response)
        next(first)
        assert open_calls(store) == 1
        assert second.process
        second.process.kill()
    eventually(lambda: open_calls(store) == 0)
