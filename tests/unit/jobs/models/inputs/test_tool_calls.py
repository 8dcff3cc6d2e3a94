"""Tool calls in a model's text."""

from typing import Any

import pytest

from jobs.models.inputs.tool_calls import Parsed, ToolCallParser, with_tool_calls
from tests.support.cases import each

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Turin"}}\n</tool_call>'
WEATHER = {"name": "weather", "arguments": '{"city":"Turin"}'}


def parsed(*parts: str) -> Parsed:
    parser = ToolCallParser(lambda: "call_x")
    found = [*(parser.feed(part) for part in parts), parser.finish()]
    return Parsed("".join(one.text for one in found), [call for one in found for call in one.calls])


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_calls_are_found_however_the_text_is_cut(size: int) -> None:
    text = f"Let me look.\n{CALL}\n{CALL}"
    found = parsed(*(text[n : n + size] for n in range(0, len(text), size)))
    assert [call["function"] for call in found.calls] == [WEATHER, WEATHER]
    assert found.text.strip() == "Let me look."


def test_a_text_without_a_whole_call_stays_as_it_is() -> None:
    for text, case in each(["a < b", "<tool", "<tool_call>{", CALL.replace("name", "nom"), ""]):
        with case:
            assert parsed(*text) == Parsed(text)


def test_text_that_can_be_no_call_is_not_held_back() -> None:
    parser = ToolCallParser()
    assert parser.feed("1 < 2").text == "1 < 2"
    assert parser.feed(" so <tool").text == " so "
    assert parser.feed("box>").text == "<toolbox>"


def test_the_end_of_the_text_closes_a_call() -> None:
    found = parsed(CALL.removesuffix("\n</tool_call>"))
    assert [call["function"] for call in found.calls] == [WEATHER]
    assert found.text == ""


def completion(text: str, finish: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def test_a_completion_that_calls_says_so() -> None:
    [choice] = with_tool_calls(completion(CALL))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["function"] == WEATHER


def test_a_completion_without_calls_or_cut_short_is_left_as_it_is() -> None:
    assert with_tool_calls(completion("hello")) == completion("hello")
    [choice] = with_tool_calls(completion(CALL, "length"))["choices"]
    assert choice["finish_reason"] == "length"
