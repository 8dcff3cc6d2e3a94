"""Streams whose api is killed, or stopped: the other api goes on with them."""

import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from jobs.calls.keys import Keys
from ops.processes.children import Child
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.platforms import GENERATING
from tests.support.wait import PATIENCE_S, eventually

MODELS = """
[[model]]
name = "talk"
version = "1"
engine = "echo_chat"
target_ttft_ms = 60000
options = { step_ms = 20.0, context_tokens = 65536, blocks = 65536 }
"""
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
    """A second api, whose address is its name."""
    own = platform.settings.evolve(port=free_port())
    url = f"http://{own.host}:{own.port}"
    log = platform.settings.home / "logs" / "api-2.log"
    child = Child(url, [sys.executable, "-m", "api"], own.environment(), log)
    child.start()
    try:
        eventually(lambda: is_ready(url))
        yield child
    finally:
        child.terminate()
        eventually(lambda: not child.alive())


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Id and data of each event."""
    data = ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "data":
            data = value
        elif name == "id":
            yield value, None if data == "[DONE]" else json.loads(data)


def words(chunks: list[Any]) -> list[str]:
    pieces = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    return "".join(piece or "" for piece in pieces).split()


def open_calls(platform: Platform) -> int:
    with redis.Redis.from_url(platform.settings.redis_url) as client:
        count: Any = client.hlen(Keys("talk@1")("calls"))
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
            for id, chunk in events(response):
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
        rest = [chunk for _, chunk in events(response)]
    assert rest.pop() is None
    assert words(chunks + rest) == [f"w{n}" for n in range(WORDS)]
    assert len({chunk["id"] for chunk in chunks + rest}) == 1


def test_a_call_of_a_dead_api_that_nobody_comes_back_for_is_dropped(
    platform: Platform, second: Child
) -> None:
    body = {**CHAT, "min_tokens": 60_000, "max_tokens": 60_000}
    headers = {"X-Millrace-Resume-Within": "1"}
    with httpx.stream(
        "POST", second.name + PATH, json=body, headers=headers, timeout=PATIENCE_S
    ) as response:
        next(events(response))
        assert open_calls(platform) == 1
        assert second.process
        second.process.kill()
    eventually(lambda: open_calls(platform) == 0)
