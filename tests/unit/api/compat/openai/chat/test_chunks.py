"""Chunks of streams, as OpenAI has them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest

from api.compat.generation.answering import Answer
from api.compat.generation.preparation import prepare_light, read_body
from api.compat.openai.chat.answers import chat_completion, text_completion
from api.compat.openai.chat.chunks import ChatChunks, TextChunks
from api.gateway.fallbacks import FallbackPlan
from api.gateway.inference import CallResult
from api.gateway.routing.target import Target
from jobs.calls.messages import ChoiceDelta, Delta
from jobs.errors import StreamBroken
from jobs.models.model import Model
from jobs.models.registry import Registry
from tests.support.generation.generation_worker import completion

SHARED = Path(__file__).parents[7] / "shared"
SPECIFICATION = SHARED / "spec" / "openai-chat-completions-responses.openapi.json"
MODEL = Model("m", "1", "echo_chat")
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
TEXT = {"model": "m", "prompt": "x"}
TOOLS = [{"type": "function", "function": {"name": "weather"}}]
TOKEN = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}


def answer(body: dict[str, Any]) -> Answer:
    prepared = prepare_light(Registry([MODEL]), Target(MODEL), read_body(body))
    return Answer("call_1", 1_763_629_200, prepared)


def result(output: Any) -> CallResult:
    return CallResult("call_1", FallbackPlan(MODEL, {}, 1, {}), orjson.dumps(output), 1, {})


def chunks(events: bytes) -> list[Any]:
    """The data of events; "[DONE]" as it is."""
    lines = [line.removeprefix("data: ") for line in events.decode().split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def streamed(body: dict[str, Any], *deltas: ChoiceDelta, output: Any = None) -> list[Any]:
    writer = (ChatChunks if "messages" in body else TextChunks)(answer(body))
    parts = [writer.write(Delta("call_1", n, (one,))) for n, one in enumerate(deltas)]
    end = writer.end(result(output or completion("ab", 2)))
    return chunks(b"".join([writer.begin(), *parts, end]))


def nullable(schema: Any) -> Any:
    """Rewrites what only OpenAPI 3.0 knows."""
    if isinstance(schema, list):
        return [nullable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {name: nullable(one) for name, one in schema.items() if name != "nullable"}
    return {"anyOf": [{"type": "null"}, rest]} if schema.get("nullable") is True else rest


def is_valid(schema: str, value: Any) -> None:
    if not SPECIFICATION.exists():
        pytest.skip("OpenAI's specification is not on this machine")
    document = nullable(json.loads(SPECIFICATION.read_text()))
    whole = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
    found = jsonschema_rs.Draft202012Validator(whole).iter_errors(value)
    assert [str(error) for error in found] == []


DELTAS = ChoiceDelta(0, "a", (1,)), ChoiceDelta(0, "b", (2,), (), "stop")


def test_a_stream_begins_with_the_role_and_ends_with_done_and_with_usage_where_it_is_wanted() -> (
    None
):
    *found, done = streamed(CHAT, *DELTAS)
    assert done == "[DONE]"
    assert [one["choices"][0]["delta"] for one in found] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "a"},
        {"content": "b"},
    ]
    assert [one["choices"][0]["finish_reason"] for one in found] == [None, None, "stop"]
    named = {(one["id"], one["created"], one["model"]) for one in found}
    assert named == {("chatcmpl-1", 1_763_629_200, "m")}
    assert all("usage" not in one for one in found)
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    *found, usage, done = streamed(body, *DELTAS)
    assert (done, usage["choices"]) == ("[DONE]", [])
    assert usage["usage"]["completion_tokens"] == 2
    assert [one["usage"] for one in found] == [None] * 3


@pytest.mark.parametrize("asked", [CHAT, TEXT])
def test_each_chunk_has_the_usage_so_far_where_it_is_wanted(asked: dict[str, Any]) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {**asked, "n": 2, "stream": True, "stream_options": options}
    writer = (ChatChunks if "messages" in body else TextChunks)(answer(body))
    first = ChoiceDelta(0, "a", (1,)), ChoiceDelta(1, "a", (1, 2))
    parts = [writer.begin(), writer.write(Delta("call_1", 0, first, (7, 4)))]
    parts.append(writer.write(Delta("call_1", 1, (DELTAS[1],))))
    *found, last, done = chunks(b"".join([*parts, writer.end(result(completion("ab", 2)))]))
    counted = [one["usage"]["completion_tokens"] for one in found]
    assert counted == ([0, 0, 3, 3, 4] if "messages" in asked else [3, 3, 4])
    assert {one["usage"]["prompt_tokens"] for one in found} == {7}
    assert found[-1]["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 4,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    assert (last["choices"], done) == ([], "[DONE]")


def test_chunks_of_an_answer_without_deltas_have_its_usage() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {**CHAT, "stream": True, "stream_options": options}
    *found, _, done = streamed(body, output=completion("hello", 1))
    assert [one["usage"]["completion_tokens"] for one in found] == [1, 1, 1]
    assert done == "[DONE]"


def test_each_choice_has_its_role_and_its_end_and_each_text_its_logprobs() -> None:
    deltas = [ChoiceDelta(n, "a", (1,), (), "stop") for n in (1, 0)]
    found = streamed({**CHAT, "n": 2}, *deltas)[:-1]
    assert [one["choices"][0]["index"] for one in found] == [0, 1, 1, 0]
    found = streamed({**CHAT, "logprobs": True}, ChoiceDelta(0, "a", (1,), (TOKEN,)))
    assert found[1]["choices"][0]["logprobs"] == {"content": [TOKEN], "refusal": None}


def test_a_text_is_a_chunk_as_the_model_wrote_it() -> None:
    assert len(streamed(CHAT, ChoiceDelta(0, "", (1,)))) == 2
    *found, done = streamed(CHAT, output=completion("hello", 1))
    assert done == "[DONE]"
    assert [one["choices"][0]["delta"].get("content") for one in found] == ["", "hello", None]
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    text = '<tool_call>{"name": "weather"}</tool_call>'
    found = streamed(CHAT, ChoiceDelta(0, text, (1,)))
    assert found[1]["choices"][0]["delta"] == {"content": text}


def test_a_tool_call_is_one_chunk_and_the_reason_of_the_end() -> None:
    text = 'Well.<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
    deltas = [ChoiceDelta(0, char, (1,)) for char in text]
    found = streamed({**CHAT, "tools": TOOLS}, *deltas, ChoiceDelta(0, "", (), (), "stop"))[:-1]
    said = [one["choices"][0]["delta"].get("content") for one in found]
    assert "".join(part or "" for part in said) == "Well."
    [call] = [c for one in found for c in one["choices"][0]["delta"].get("tool_calls", [])]
    assert (call["index"], call["function"]) == (0, {"name": "weather", "arguments": "{}"})
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    for one in found:
        is_valid("CreateChatCompletionStreamResponse", one)


def test_a_tool_call_that_is_cut_has_its_arguments_so_far() -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Tu'
    deltas = [ChoiceDelta(0, char, (1,)) for char in text]
    found = streamed({**CHAT, "tools": TOOLS}, *deltas, ChoiceDelta(0, "", (), (), "length"))[:-1]
    said = [one["choices"][0]["delta"].get("content") for one in found]
    [call] = [c for one in found for c in one["choices"][0]["delta"].get("tool_calls", [])]
    assert "".join(part or "" for part in said) == ""
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Tu'}
    assert found[-1]["choices"][0]["finish_reason"] == "length"


def test_chunks_of_completions_are_text_completions() -> None:
    output = completion("ab", 2, chat=False)
    legacy = ChoiceDelta(0, "a", (1,), (TOKEN,)), ChoiceDelta(0, "a", (1,), (TOKEN,), "length")
    *found, done = streamed({**TEXT, "logprobs": 0}, *legacy, output=output)
    assert done == "[DONE]"
    assert [one["object"] for one in found] == ["text_completion"] * 2
    assert [one["choices"][0]["logprobs"]["text_offset"] for one in found] == [[0], [1]]
    assert [one["choices"][0]["finish_reason"] for one in found] == [None, "length"]


def test_an_echoed_prompt_comes_with_its_log_probabilities() -> None:
    first = {"token": "", "logprob": None, "bytes": list(b"<s>"), "top_logprobs": []}
    listed = [None, {"1": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}}]
    opening = ChoiceDelta(0, "a", logprobs=[first, TOKEN], prompt_logprobs=listed)
    output = completion("ab", 2, chat=False)
    begin, more, _ = streamed(TEXT, opening, ChoiceDelta(0, "a", (1,), (TOKEN,)), output=output)
    [choice] = begin["choices"]
    assert (choice["text"], choice["prompt_logprobs"]) == ("a", listed)
    assert choice["logprobs"] == {
        "tokens": ["<s>", "a"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"a": -0.5}],
        "text_offset": [0, 0],
    }
    assert more["choices"][0]["logprobs"]["text_offset"] == [1]
    assert "prompt_logprobs" not in more["choices"][0]
    both = [ChoiceDelta(n, prompt_logprobs=listed) for n in (0, 1)]
    found = [one for one in streamed(CHAT, *both)[:-1] if "prompt_logprobs" in one]
    assert [(one["choices"], one["prompt_logprobs"]) for one in found] == [([], listed)]


def test_token_ids_come_where_vllm_has_them() -> None:
    ids = {"return_token_ids": True}
    deltas = [
        part for n in (0, 1)
        for part in (
            ChoiceDelta(n, prompt_tokens=[7, 8]),
            ChoiceDelta(n, "a", [1]),
            ChoiceDelta(n, "", [2]),  # text that is held back
            ChoiceDelta(n, "", [3], (), "stop"),
        )
    ]  # fmt: skip
    chat = streamed({**CHAT, **ids, "n": 2}, *deltas)[:-1]
    assert [one.get("prompt_token_ids") for one in chat] == [[7, 8], *[None] * (len(chat) - 1)]
    assert chat[0]["choices"][0]["delta"]["role"] == "assistant"
    text = streamed({**TEXT, **ids, "n": 2}, *deltas)[:-1]
    for n in (0, 1):
        told = [one["choices"][0] for one in chat if one["choices"][0]["index"] == n]
        assert [one["token_ids"] for one in told if "token_ids" in one] == [[1], [2], [3]]
        told = [one["choices"][0] for one in text if one["choices"][0]["index"] == n]
        assert [one["token_ids"] for one in told] == [[1], [2], [3]]
        assert [one.get("prompt_token_ids") for one in told] == [[7, 8], None, None]
    for body in (CHAT, TEXT):
        assert "token_ids" not in str(streamed(body, ChoiceDelta(0, "a", [1]), *DELTAS))
    echoed = [ChoiceDelta(0, "a", prompt_tokens=[7]), ChoiceDelta(0, "b", [1])]
    first, second = (one["choices"][0] for one in streamed({**TEXT, **ids}, *echoed)[:2])
    assert (first["prompt_token_ids"], first["token_ids"]) == ([7], [])
    assert (second.get("prompt_token_ids"), second["token_ids"]) == (None, [1])
    output = {**completion("ab", 2), "prompt_token_ids": [7]}
    output["choices"][0]["token_ids"] = [1, 2]
    role, whole, end, _ = streamed({**CHAT, **ids}, output=output)
    assert (role["prompt_token_ids"], whole["choices"][0]["token_ids"]) == ([7], [1, 2])
    assert "token_ids" not in end["choices"][0]


def test_an_error_in_a_stream_is_an_object_that_sdks_raise() -> None:
    [found] = chunks(ChatChunks(answer(CHAT)).fail(StreamBroken("part 1 was lost"), "req_1"))
    error = found["error"]
    assert (error["code"], error["message"]) == ("stream_broken", "part 1 was lost")


@pytest.mark.parametrize("logprobs", [None, {"content": [TOKEN], "refusal": None}])
def test_whole_answers_and_chunks_are_valid_by_openais_specification(logprobs: Any) -> None:
    output = completion("ab", 2)
    output["choices"][0]["logprobs"] = logprobs
    found = chat_completion(answer(CHAT), result(output))
    is_valid("CreateChatCompletionResponse", found)
    assert (found["id"], found["model"]) == ("chatcmpl-1", "m")
    body = {**CHAT, "logprobs": True, "stream": True, "stream_options": {"include_usage": True}}
    for one in streamed(body, ChoiceDelta(0, "a", (1,), (TOKEN,), "stop"))[:-1]:
        is_valid("CreateChatCompletionStreamResponse", one)


def test_whole_answers_have_logprobs_in_the_older_form_and_name_a_fallback() -> None:
    output = completion("a", 1, chat=False)
    output["choices"][0]["logprobs"] = {"content": [TOKEN]}
    found = text_completion(answer(TEXT), result(output))
    assert found["choices"][0]["logprobs"]["tokens"] == ["a"]
    is_valid("CreateCompletionResponse", found)
    plan = FallbackPlan(Model("o", "1", "echo"), {}, 1, {"fallback_from": "m@1"})
    other = replace(result(completion("ab", 2)), plan=plan)
    found = chat_completion(answer(CHAT), other)
    assert (found["model"], found["degraded"]) == ("o@1", {"fallback_from": "m@1"})
