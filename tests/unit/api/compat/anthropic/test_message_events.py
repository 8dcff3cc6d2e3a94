"""Events of a streamed message, in the order and the form that Anthropic's client knows."""

import json
from typing import Any

import pytest
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from api.compat.anthropic.messages.events import MessageEvents
from api.compat.anthropic.messages.routes import read_message
from api.compat.generation.answering import Answer
from api.compat.generation.preparation import prepare_light
from api.gateway.routing.target import Target
from jobs.calls.messages import ChoiceDelta, Delta
from jobs.models.registry import Registry
from tests.support.generation.generation_worker import completion
from tests.unit.api.compat.openai.chat.test_chunks import MODEL, result

pytestmark = pytest.mark.heavy

BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
TOOLS = [{"name": "weather", "input_schema": {"type": "object"}}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Turin"}}</tool_call>'
KNOWN: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def writer(**more: Any) -> MessageEvents:
    prepared = prepare_light(Registry([MODEL]), Target(MODEL), read_message({**BODY, **more}))
    return MessageEvents(Answer("call_1", 1_763_629_200, prepared))


def events(raw: bytes) -> list[Any]:
    found = []
    for one in raw.decode().split("\n\n")[:-1]:
        name, data = one.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert value["type"] == name.removeprefix("event: ")
        if value["type"] not in ("ping", "error"):
            KNOWN.validate_python(value)
        found.append(value)
    return found


def streamed(
    texts: list[str], finish: str = "stop", stopped_by: str | None = None, **more: Any
) -> list[Any]:
    made = writer(**more)
    deltas = [ChoiceDelta(0, text, (1,)) for text in texts]
    deltas += [ChoiceDelta(0, "", (), (), finish, stopped_by)] if texts else []
    parts = [
        made.write(Delta("call_1", n, (one,), () if n else (3, 1))) for n, one in enumerate(deltas)
    ]
    whole = completion("".join(texts) or "whole", 2, finish=finish)
    whole["choices"][0]["stop_reason"] = stopped_by
    end = made.end(result(whole))
    return events(b"".join([made.begin(), *parts, end]))


def test_a_text_is_one_block_between_start_and_stop() -> None:
    found = streamed(["one", " two"])
    types = "message_start ping content_block_start content_block_delta content_block_delta"
    types += " content_block_stop message_delta message_stop"
    assert [one["type"] for one in found] == types.split()
    assert found[0]["message"]["id"] == "msg_1"
    assert "".join(one["delta"]["text"] for one in found[3:5]) == "one two"
    assert found[6]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert (found[6]["usage"]["input_tokens"], found[6]["usage"]["output_tokens"]) == (3, 2)
    whole = streamed([])  # an output in one piece is one delta
    texts = [one["delta"]["text"] for one in whole if one["type"] == "content_block_delta"]
    assert texts == ["whole"]


def test_the_start_tells_the_tokens_of_the_prompt_and_the_end_why_it_came() -> None:
    for texts, cached in ((["one", " two"], 1), ([], 0)):
        usage = streamed(texts)[0]["message"]["usage"]
        assert usage["cache_read_input_tokens"] == cached
        assert (usage["input_tokens"], usage["output_tokens"]) == (3 - cached, 0)
    assert streamed(["one"], "length")[-2]["delta"]["stop_reason"] == "max_tokens"
    for texts in (["one"], []):
        delta = streamed(texts, stopped_by="END")[-2]["delta"]
        assert delta == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    called = streamed([CALL], stopped_by="END", tools=TOOLS)[-2]["delta"]
    assert called == {"stop_reason": "tool_use", "stop_sequence": None}


def test_a_tool_call_that_is_cut_has_its_input_so_far() -> None:
    cut = CALL[: CALL.index("rin")]
    found = streamed([*cut], "length", tools=TOOLS)
    [start] = [one for one in found if one["type"] == "content_block_start"]
    [delta] = [one for one in found if one["type"] == "content_block_delta"]
    assert start["content_block"]["name"] == "weather"
    assert delta["delta"]["partial_json"] == '{"city": "Tu'
    assert found[-2]["delta"]["stop_reason"] == "max_tokens"
