"""Whole answers of the generation APIs, and requests that they refuse."""

from tests.integration.api.generation.conftest import Stage, driving
from tests.support.cases import each
from tests.support.generation.generation_worker import FakeGenerationWorker, answering, completion

MESSAGES = [{"role": "user", "content": "x"}]
CHAT = {"model": "m", "messages": MESSAGES}
PATH = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "weather"}}]


def test_completions_are_answered_whole(stage: Stage) -> None:
    with answering(stage.worker, ["one", " two"]):
        found = stage.post(PATH, CHAT)
        of_text = stage.post("/v1/completions", {"model": "m@1", "prompt": "x"}).json()
    assert found.status_code == 200
    assert found.headers["x-request-id"].startswith("req_")
    body = found.json()
    assert (body["object"], body["model"]) == ("chat.completion", "m")
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"][0]["message"]["content"] == "one two"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert (of_text["object"], of_text["model"]) == ("text_completion", "m@1")
    assert of_text["choices"][0]["text"] == "one two"


def test_the_worker_gets_the_input_without_what_concerns_the_request(stage: Stage) -> None:
    body = {**CHAT, "temperature": 0, "timeout_ms": 60_000, "stream": False, "user": "u"}
    with driving(lambda: stage.post(PATH, body)) as asked:
        call = stage.worker.take()
        stage.worker.reply(call, completion("x", 1))
    assert asked.result().status_code == 200
    assert call.input == {"messages": MESSAGES, "temperature": 0, "user": "u"}
    assert not call.stream


def test_tool_calls_are_parsed_from_the_text(stage: Stage) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Turin"}}</tool_call>'
    with answering(stage.worker, [text]):
        found = stage.post(PATH, {**CHAT, "tools": TOOLS}).json()
    [choice] = found["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"Turin"}'


def test_a_large_conversation_is_read_in_a_child_process(stage: Stage) -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * 100_000}]}
    with answering(stage.worker, ["one"]):
        found = stage.post(PATH, body)
    assert found.json()["choices"][0]["message"]["content"] == "one"


def test_an_upstream_answers_whole_and_as_a_stream_of_one_piece(stage: Stage) -> None:
    worker = FakeGenerationWorker(stage.redis, "up@1")
    with answering(worker, ["hello"]):
        whole = stage.post(PATH, {**CHAT, "model": "up"})
        stream = stage.post(PATH, {**CHAT, "model": "up", "stream": True})
    assert whole.json()["choices"][0]["message"]["content"] == "hello"
    assert '"content":"hello"' in stream.text
    assert stream.text.endswith("\n\ndata: [DONE]\n\n")


def test_a_key_replays_a_whole_answer(stage: Stage) -> None:
    key = {"Idempotency-Key": "abc"}
    with answering(stage.worker, ["one"]):
        first = stage.post(PATH, CHAT, **key)
    again = stage.post(PATH, CHAT, **key)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"


def test_refusals_name_the_field(stage: Stage) -> None:
    text = {"model": "m", "prompt": "x"}
    for (path, body, param), case in each(
        [
            (PATH, {**CHAT, "temperature": 3}, "temperature"),
            (PATH, {**CHAT, "response_format": {"type": "x"}}, "response_format.type"),
            (PATH, {**CHAT, "regex": "a" * 70_000}, "regex"),
            (PATH, {**CHAT, "invented": 1}, "invented"),
            (PATH, {**CHAT, "stream": "yes"}, "stream"),
            (PATH, {**CHAT, "stream_options": {}}, "stream_options"),
            (PATH, {"model": "m"}, "messages"),
            (PATH, {"messages": MESSAGES}, "model"),
            (PATH, {**CHAT, "model": "plain"}, "model"),
            (PATH, {**CHAT, "prompt": "x"}, "input"),
            (PATH, {**CHAT, "timeout_ms": 0}, "timeout_ms"),
            ("/v1/completions", {**text, "choice": []}, "choice"),
            ("/v1/completions", {**text, "prompt": ""}, "prompt"),
            ("/v1/completions", {**text, "suffix": "y"}, "suffix"),
            ("/v1/completions", {**text, "model": "up"}, "model"),
        ],
        name=lambda row: f"{row[2]} of {str(row[1])[:80]}",
    ):
        with case:
            found = stage.post(path, body)
            error = found.json()["error"]
            assert (found.status_code, error["type"]) == (400, "invalid_request_error")
            assert error["param"] == param


def test_a_stream_under_a_key_is_refused(stage: Stage) -> None:
    key = {"Idempotency-Key": "abc"}
    found = stage.post(PATH, {**CHAT, "stream": True}, **key)
    assert found.status_code == 400
    assert "Idempotency-Key" in found.json()["error"]["message"]
    assert stage.post("/infer", {"model": "m", "stream": True, "input": CHAT}, **key).is_error


def test_a_native_call_is_told_what_is_wrong(stage: Stage) -> None:
    no_stream = {"model": "plain", "stream": True, "input": "x"}
    no_choice = {"model": "m", "input": {"messages": MESSAGES, "n": 0}}
    for body, why in (
        (no_stream, "its output comes in one piece"),
        (no_choice, "n must be a whole number from 1 to 128"),
    ):
        found = stage.post("/infer", body)
        assert (found.status_code, why in found.json()["detail"]) == (422, True), found.text


def test_a_model_without_a_worker_is_unavailable(stage: Stage) -> None:
    found = stage.post(PATH, {**CHAT, "model": "up", "stream": True})
    assert found.status_code == 503
    assert found.json()["error"]["code"] == "no_worker"
    assert found.headers["retry-after"]
