"""A model whose calls are answered by a quantized version while it is full; each answer says so."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.clients import chat, events
from tests.support.models.entries import model
from tests.support.pace import pace
from tests.support.platforms import spec
from tests.support.wait import PATIENCE_S, eventually

pytestmark = pytest.mark.nightly

# one answer at a time, of a second
MODELS = model(
    "talk", "echo_chat", target_ttft_ms=1000, degrade={"fallback": "talk-int8@1"},
    step_ms=20.0, sequences=1,
)  # fmt: skip
MODELS += model("talk-int8", "echo_chat", target_ttft_ms=60000, step_ms=1.0)
PLATFORM = spec(MODELS, lease_s=1.5 * pace())  # workers report predictions every half second
SAID = "word " * 49 + "end"
CHAT = chat(SAID, max_tokens=64)


def post(platform: Platform, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{platform.url}{path}", json=body, timeout=PATIENCE_S)


def infer(platform: Platform) -> Any:
    return post(platform, "/infer", {"model": "talk", "input": CHAT}).json()


@pytest.fixture(scope="module")
def busy(platform: Platform) -> Iterator[Platform]:
    """The platform under more calls than the model can answer in time."""
    eventually(lambda: infer(platform).get("version"))
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            infer(platform)

    with ThreadPoolExecutor(6) as pool:
        for _ in range(6):
            pool.submit(call)
        try:
            yield platform
        finally:
            over.set()


def degraded(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Asks until an answer is the fallback's."""

    def answer() -> dict[str, Any] | None:
        found = ask()
        return found if "degraded" in found else None

    found = eventually(answer)
    assert found["degraded"] == {"fallback_from": "talk@1"}
    return found


def test_a_call_says_which_model_answered_and_which_it_was_meant_for(busy: Platform) -> None:
    assert eventually(lambda: infer(busy).get("model") == "talk")  # those that can be in time
    assert degraded(lambda: infer(busy))["model"] == "talk-int8"
    answer = degraded(lambda: post(busy, "/v1/chat/completions", {"model": "talk", **CHAT}).json())
    assert answer["model"] == "talk-int8@1"
    assert answer["choices"][0]["message"]["content"] == SAID


@pytest.mark.parametrize(
    ("path", "more", "type"),
    [
        ("/v1/chat/completions", {"stream_options": {"include_usage": True}}, None),
        ("/v1/messages", {}, "message_delta"),
        ("/infer", {"input": {"prompt": SAID, "max_tokens": 64}}, None),
    ],
)
def test_a_stream_says_it_at_its_end(
    busy: Platform, path: str, more: dict[str, Any], type: str | None
) -> None:
    def last() -> dict[str, Any]:
        body = {"model": "talk", "stream": True, **more, **({} if path == "/infer" else CHAT)}
        lines = post(busy, path, body).text.splitlines()
        found = [one.data for one in events(lines) if one.data]
        return ([one for one in found if one.get("type") == type] or [{}])[-1]

    degraded(last)
