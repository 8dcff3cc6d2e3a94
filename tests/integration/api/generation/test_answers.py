"""Whole answers of the generation APIs, and requests that they refuse."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.api.generation.conftest import Stage
from tests.support.generation.generation_worker import FakeGenerationWorker, answering, completion

MESSAGES = [{"role": "user", "content": "x"}]
CHAT = {"model": "m", "messages": MESSAGES}
TOOLS = [{"type": "function", "function": {"name": "weather"}}]


def test_a_chat_completion_is_answered_whole(stage: Stage) -> None:
    with answering(stage.worker, ["one", " two"]):
        found = stage.post("/v1/chat/completions", CHAT)
    assert found.status_code == 200
    assert found.headers["x-request-id"].startswith("req_")
    body = found.json()
    assert (body["object"], body["model"]) == ("chat.completion", "m")
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"][0]["message"]["content"] == "one two"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_completion_is_answered_whole(stage: Stage) -> None:
    with answering(stage.worker, ["one", " two"]):
        found = stage.post("/v1/completions", {"model": "m@1", "prompt": "x"}).json()
    assert (found["object"], found["model"]) == ("text_completion", "m@1")
    assert found["choices"][0]["text"] == "one two"


def test_the_worker_gets_the_input_without_what_concerns_the_request(stage: Stage) -> None:
    body = {**CHAT, "temperature": 0, "timeout_ms": 60_000, "stream": False, "user": "u"}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(stage.post, "/v1/chat/completions", body)
        call = stage.worker.take()
        stage.worker.reply(call, completion("x", 1))
        assert asked.result().status_code == 200
    assert call.input == {"messages": MESSAGES, "temperature": 0, "user": "u"}
    assert not call.stream


def test_tool_calls_are_parsed_from_the_text(stage: Stage) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Turin"}}</tool_call>'
    with answering(stage.worker, [text]):
        found = stage.post("/v1/chat/completions", {**CHAT, "tools": TOOLS}).json()
    [choice] = found["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"Turin"}'


def test_a_large_conversation_is_read_in_a_child_process(stage: Stage) -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * 100_000}]}
    with answering(stage.worker, ["one"]):
        found = stage.post("/v1/chat/completions", body)
    assert found.json()["choices"][0]["message"]["content"] == "one"


def test_an_upstream_answers_whole_and_as_a_stream_of_one_piece(stage: Stage) -> None:
    worker = FakeGenerationWorker(stage.redis, "up@1")
    with answering(worker, ["hello"]):
        whole = stage.post("/v1/chat/completions", {**CHAT, "model": "up"})
        stream = stage.post("/v1/chat/completions", {**CHAT, "model": "up", "stream": True})
    assert whole.json()["choices"][0]["message"]["content"] == "hello"
    assert '"content":"hello"' in stream.text
    assert stream.text.splitlines()[-3] == "data: [DONE]"


def test_a_key_replays_a_whole_answer(stage: Stage) -> None:
    key = {"Idempotency-Key": "abc"}
    with answering(stage.worker, ["one"]):
        first = stage.post("/v1/chat/completions", CHAT, **key)
    again = stage.post("/v1/chat/completions", CHAT, **key)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {**CHAT, "temperature": 3}, "temperature"),
        (
            "/v1/chat/completions",
            {**CHAT, "response_format": {"type": "x"}},
            "response_format.type",
        ),
        ("/v1/chat/completions", {**CHAT, "regex": "a" * 70_000}, "regex"),
        ("/v1/completions", {"model": "m", "prompt": "x", "choice": []}, "choice"),
        ("/v1/chat/completions", {**CHAT, "invented": 1}, "invented"),
        ("/v1/chat/completions", {**CHAT, "stream": "yes"}, "stream"),
        ("/v1/chat/completions", {**CHAT, "stream_options": {}}, "stream_options"),
        ("/v1/chat/completions", {"model": "m"}, "messages"),
        ("/v1/chat/completions", {"messages": MESSAGES}, "model"),
        ("/v1/chat/completions", {**CHAT, "model": "plain"}, "model"),
        ("/v1/chat/completions", {**CHAT, "prompt": "x"}, "input"),
        ("/v1/chat/completions", {**CHAT, "timeout_ms": 0}, "timeout_ms"),
        ("/v1/completions", {"model": "m", "prompt": ""}, "prompt"),
        ("/v1/completions", {"model": "m", "prompt": "x", "suffix": "y"}, "suffix"),
        ("/v1/completions", {"model": "up", "prompt": "x"}, "model"),
    ],
)
def test_refusals_name_the_field(stage: Stage, path: str, body: dict[str, Any], param: str) -> None:
    found = stage.post(path, body)
    assert found.status_code == 400
    error = found.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param


def test_a_stream_under_a_key_is_refused(stage: Stage) -> None:
    key = {"Idempotency-Key": "abc"}
    found = stage.post("/v1/chat/completions", {**CHAT, "stream": True}, **key)
    assert found.status_code == 400
    assert "Idempotency-Key" in found.json()["error"]["message"]
    assert stage.post("/infer", {"model": "m", "stream": True, "input": CHAT}, **key).is_error


def test_a_model_that_answers_in_one_piece_does_not_stream(stage: Stage) -> None:
    found = stage.post("/infer", {"model": "plain", "stream": True, "input": "x"})
    assert found.status_code == 422
    assert "its output comes in one piece" in found.json()["detail"]


def test_an_input_that_is_refused_names_its_field(stage: Stage) -> None:
    found = stage.post("/infer", {"model": "m", "input": {"messages": MESSAGES, "n": 0}})
    assert found.status_code == 422
    assert "n must be a whole number from 1 to 128" in found.json()["detail"]


def test_a_model_without_a_worker_is_unavailable(stage: Stage) -> None:
    found = stage.post("/v1/chat/completions", {**CHAT, "model": "up", "stream": True})
    assert found.status_code == 503
    assert found.json()["error"]["code"] == "no_worker"
    assert found.headers["retry-after"]
