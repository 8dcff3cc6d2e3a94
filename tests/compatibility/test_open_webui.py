"""Requests that Open WebUI 0.12.4 makes of an OpenAI-compatible server, and what it reads of the
answers: as in its `routers/openai.py`, `routers/tasks.py`, `retrieval/utils.py`."""

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from ops.bench.harness.models_files import models_file, sample
from ops.supervisor.platform import Platform
from tests.support.models.entries import model
from tests.support.platforms import spec
from tests.support.wait import PATIENCE_S

PLATFORM = spec(
    models_file(sample("minilm"))
    + model("talk", "echo_chat", target_ttft_ms=600_000, step_ms=2)
    + model("slow", "echo_chat", target_ttft_ms=600_000, step_ms=200, sequences=1)
)
SEARCH = {
    "type": "function",
    "function": {
        "name": "search_web",
        "description": "Search the public web.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "count": {"type": "integer", "default": 5}},
            "required": ["query"],
        },
    },
}
CHAT = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "one two three"},
]


@pytest.fixture
def webui(platform: Platform) -> Iterator[httpx.Client]:
    """A client with its headers, those that it forwards about its user included."""
    headers = {
        "Authorization": "Bearer sk-none",
        "Content-Type": "application/json",
        "X-OpenWebUI-User-Name": "Ada%20L",
        "X-OpenWebUI-User-Id": "7f0c2f9e-1f0c-4f43-9d0f-8e58b7f35f4a",
        "X-OpenWebUI-User-Email": "ada@example.org",
        "X-OpenWebUI-User-Role": "admin",
        "X-OpenWebUI-Chat-Id": "0f6b4a9c-52a4-4a2e-8f52-8f3a39f6f0d3",
    }
    base = f"{platform.url}/v1"
    with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE_S) as made:
        yield made


def streamed(webui: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Reads lines that begin with `data:`, up to [DONE]."""
    with webui.stream("POST", "/chat/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        assert "text/event-stream" in answer.headers["Content-Type"]
        lines = [
            line.removeprefix("data:").strip() for line in answer.iter_lines() if "data:" in line
        ]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


def text_of(chunks: list[dict[str, Any]]) -> str:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", [])]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_its_list_has_models_by_their_ids(webui: httpx.Client) -> None:
    found = webui.get("/models").json()
    assert {"talk", "minilm"} <= {model["id"] for model in found["data"]}
    assert all(model["owned_by"] for model in found["data"])


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"stream_options": {"include_usage": True}},
        {"stop": ["four"], "temperature": 0.8, "seed": 3, "max_tokens": 20, "top_p": 0.9},
        {"stop": [], "frequency_penalty": 0.0, "presence_penalty": 0.0, "logit_bias": {"5": -100}},
        {"tools": [SEARCH]},
    ],
    ids=["plain", "usage", "parameters", "empty", "tools"],
)
def test_a_chat_is_streamed(webui: httpx.Client, more: dict[str, Any]) -> None:
    chunks = streamed(webui, {"stream": True, "model": "talk", "messages": CHAT, **more})
    assert "three" in text_of(chunks)
    used = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert len(used) == ("stream_options" in more)


def test_a_conversation_goes_on_after_a_tool(webui: httpx.Client) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "index": 0,
        "function": {"name": "search_web", "arguments": '{"query": "a"}'},
    }
    messages = [
        *CHAT,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "four five"},
    ]
    body = {"stream": True, "model": "talk", "messages": messages, "tools": [SEARCH]}
    assert text_of(streamed(webui, body))


@pytest.mark.parametrize("task", ["title", "tags", "follow-up questions"])
def test_a_title_is_answered_whole(webui: httpx.Client, task: str) -> None:
    prompt = f"### Task:\nGenerate {task}.\n### Output:\nJSON\n<chat_history>one</chat_history>"
    body = {"model": "talk", "messages": [{"role": "user", "content": prompt}], "stream": False}
    answer = webui.post("/chat/completions", json=body | {"max_tokens": 1000})
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]


def test_a_document_is_embedded_in_lists(webui: httpx.Client) -> None:
    answer = webui.post("/embeddings", json={"input": ["a black cat", "a dog"], "model": "minilm"})
    assert [len(one["embedding"]) for one in answer.json()["data"]] == [384, 384]


def test_a_connection_may_use_responses(webui: httpx.Client) -> None:
    content = [{"type": "input_text", "text": "one two three"}]
    body = {
        "model": "talk",
        "stream": True,
        "instructions": "You are a helpful assistant.",
        "input": [{"type": "message", "role": "user", "content": content}],
        "max_output_tokens": 50,
    }
    with webui.stream("POST", "/responses", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        lines = [line for line in answer.iter_lines() if line.startswith("data:")]
    events = [orjson.loads(line.removeprefix("data:")) for line in lines]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["usage"]["output_tokens"] > 0


def test_its_stop_button_ends_the_call(webui: httpx.Client) -> None:
    asked = [{"role": "user", "content": "word " * 3000}]
    body = {"stream": True, "model": "slow", "messages": asked}
    with webui.stream("POST", "/chat/completions", json=body) as answer:
        next(answer.iter_lines())
    # The model has one place: it is free again long before the ten minutes of that answer.
    after = {"model": "slow", "messages": [{"role": "user", "content": "one"}], "stream": False}
    assert webui.post("/chat/completions", json=after).json()["choices"][0]["message"]["content"]


def test_an_error_says_what_is_wrong_where_it_looks(webui: httpx.Client) -> None:
    body = {"stream": True, "model": "talk", "messages": CHAT, "num_ctx": 4096}
    answer = webui.post("/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("num_ctx isn't supported")
