"""Conversations that go on with answers from elsewhere: what their clients repeat of those passes
on every route where it says nothing, and leaves the prompt as it is."""

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.models.entries import model
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = model("chatter", "echo_chat")
USER: Any = {"role": "user", "content": "one two three"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
NEUTRAL: dict[str, Any] = {
    "id": "msg_1", "annotations": [], "audio": None, "function_call": None, "refusal": None,
    "reasoning_content": None, "tool_calls": [],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "text": {**NEUTRAL, "role": "assistant", "content": "hello"},
    "calls": {**NEUTRAL, "role": "assistant", "content": None, "tool_calls": [CALL]},
    "refusal": {**NEUTRAL, "role": "assistant", "content": None, "refusal": "No."},
}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "status": None}
THINKING: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}


def test_chat_completions_take_earlier_messages_as_they_were(client: OpenAI) -> None:
    for (_, answer), case in each(ANSWERS.items(), name=lambda pair: pair[0]):
        with case:
            messages: Any = [USER, answer, USER]
            made = client.chat.completions.create(model="chatter", messages=messages)
            assert made.choices[0].message.content == USER["content"]
    own: Any = made.choices[0].message.model_dump()
    again = client.chat.completions.create(model="chatter", messages=[USER, own, USER])
    assert again.choices[0].message.content == USER["content"]


def test_what_is_not_empty_and_not_supported_is_refused_with_its_place(client: OpenAI) -> None:
    given = {"annotations": [{"type": "url_citation"}], "audio": {"id": "a"}, "id": 5}
    given |= {"reasoning_content": "because", "function_call": {"name": "f", "arguments": "{}"}}
    for (name, value), case in each(given.items(), name=lambda pair: pair[0]):
        answer: Any = {"role": "assistant", "content": "x", name: value}
        with case:
            with pytest.raises(openai.BadRequestError) as caught:
                client.chat.completions.create(model="chatter", messages=[USER, answer, USER])
            assert caught.value.param == f"messages[1].{name}"
            assert "leave it out" in caught.value.message


def test_a_nul_is_refused_for_what_it_is(platform: Platform, client: OpenAI) -> None:
    headers = {"Authorization": f"Bearer {client.api_key}", "anthropic-version": "2023-06-01"}
    said: Any = {"model": "chatter", "max_tokens": 9, "messages": [USER, {**USER, "content": "\0"}]}
    bodies = {
        "/infer": ({"model": "chatter", "input": {"messages": said["messages"]}}, "input."),
        "/v1/chat/completions": (said, ""),
        "/v1/messages": ({**said, "system": "Be kind."}, ""),
        "/v1/responses": ({"model": "chatter", "input": said["messages"]}, "input[1].content"),
    }
    for path, case in each(bodies):
        with case:
            body, place = bodies[path]
            refused = httpx.post(f"{platform.url}{path}", json=body, headers=headers)
            assert refused.status_code in (400, 422)
            place = place if place.endswith("content") else f"{place}messages[1].content"
            assert f"{place} holds a NUL character, U+0000: remove it" in refused.text
            assert "stored" not in refused.text


def test_responses_take_items_of_earlier_answers(client: OpenAI) -> None:
    part = {"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
    items: Any = [USER, {**REASONING, "encrypted_content": None}, answer, USER]
    made = client.responses.create(model="chatter", input=items)
    assert made.output_text == USER["content"]
    items[1]["summary"] = [{"type": "summary_text", "text": "because"}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="chatter", input=items)
    assert caught.value.param == "input[1].type"
    with pytest.raises(openai.BadRequestError, match="must hold more than reasoning"):
        client.responses.create(model="chatter", input=[REASONING])  # type: ignore[list-item]


def test_messages_take_earlier_messages_as_they_were(platform: Platform, client: OpenAI) -> None:
    claude = Anthropic(base_url=platform.url, api_key=client.api_key, max_retries=0)
    blocks = [THINKING, {"type": "text", "text": "hello", "citations": None}]
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "content": blocks}
    asked: Any = {"model": "chatter", "max_tokens": 9, "messages": [USER, answer, USER]}
    assert claude.messages.create(**asked).content[0].text == USER["content"]
    blocks[0] = {**THINKING, "thinking": "because"}
    with pytest.raises(anthropic.BadRequestError, match="thinking"):
        claude.messages.create(**asked)


BIG = '{"n":123456789012345678901234567890}'
GIVEN = {'{"a": "</tool_call>"}': '{"a":"</tool_call>"}', "null": "{}", BIG.replace(":", ": "): BIG}
SCHEMA = {"type": "object"}


def test_tool_calls_are_taken_back_as_they_were_answered(
    platform: Platform, client: OpenAI
) -> None:
    claude = Anthropic(base_url=platform.url, api_key=client.api_key, max_retries=0)
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    theirs: Any = [{"name": "f", "input_schema": SCHEMA}]
    items: Any = [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}]
    for given, case in each(GIVEN):
        call = f'<tool_call> {{"name": "f", "arguments": {given}}} </tool_call>'
        asks: Any = {"role": "user", "content": call}
        with case:
            made = client.chat.completions.create(model="chatter", messages=[asks], tools=tools)
            said: Any = made.choices[0].message.model_dump()
            [called] = said["tool_calls"]
            assert called["function"] == {"name": "f", "arguments": GIVEN[given]}
            result: Any = {"role": "tool", "tool_call_id": called["id"], "content": "1"}
            client.chat.completions.create(model="chatter", messages=[asks, said, result, USER])
            answer = client.responses.create(model="chatter", input=[asks], tools=items)
            item: Any = answer.output[0].model_dump(exclude_none=True)
            assert item["arguments"] == GIVEN[given]
            output: Any = {"type": "function_call_output", "call_id": item["call_id"]}
            history: Any = [asks, item, {**output, "output": "1"}, USER]
            client.responses.create(model="chatter", input=history)
            message = claude.messages.create(
                model="chatter", max_tokens=99, messages=[asks], tools=theirs
            )
            block: Any = message.content[0]
            assert compact(block.input) == GIVEN[given]


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
