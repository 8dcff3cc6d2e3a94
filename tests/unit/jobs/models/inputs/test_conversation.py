"""Messages and tools of a generation request."""

from typing import Any

import pytest

from jobs.models.inputs.conversation import MOST_TOOLS, read_messages, read_tools
from jobs.models.inputs.fields import FieldError, Fields

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Turin"}'},
}
FUNCTION = {"name": "weather", "description": "of a city", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": FUNCTION}


def test_parts_of_a_message_become_one_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    read = read_messages([{"role": "developer", "content": parts, "name": "ada"}])
    assert read == ({"role": "system", "content": "one\ntwo", "name": "ada"},)


def test_arguments_of_earlier_calls_become_objects_for_the_template() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    assistant, tool = read_messages(messages)
    assert assistant["content"] == ""
    assert assistant["tool_calls"][0]["function"]["arguments"] == {"city": "Turin"}
    assert tool["tool_call_id"] == "call_1"


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("hello", "messages[0].role"),
        ({"role": "nobody", "content": "x"}, "messages[0].role"),
        ({"role": [], "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "assistant", "content": None}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": "x", "audio": {"id": "a"}}, "messages[0].audio"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            "messages[0].content[0].type",
        ),
    ],
)
def test_a_message_that_no_template_takes_is_refused_with_its_place(
    message: Any, place: str
) -> None:
    with pytest.raises(FieldError) as raised:
        read_messages([message])
    assert raised.value.field == place


@pytest.mark.parametrize("arguments", ["{", "[]", 5])
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    call = {**CALL, "function": {"name": "weather", "arguments": arguments}}
    with pytest.raises(FieldError, match="arguments must be an object"):
        read_messages([{"role": "assistant", "tool_calls": [call]}])


def test_tools_are_passed_on_as_they_are() -> None:
    assert read_tools(Fields({"tools": [TOOL], "tool_choice": "auto"})) == ((TOOL,), "auto")
    assert read_tools(Fields({})) == ((), None)


@pytest.mark.parametrize(
    ("tool", "place"),
    [
        ("weather", "tools[0].type"),
        ({"type": "custom", "custom": {"name": "x"}}, "tools[0].type"),
        ({"type": "function"}, "tools[0].function"),
        ({"type": "function", "function": {"name": "a b"}}, "tools[0].function.name"),
        (
            {"type": "function", "function": {**FUNCTION, "strict": True}},
            "tools[0].function.strict",
        ),
        ({"type": "function", "function": {**FUNCTION, "x": 1}}, "tools[0].function.x"),
        (
            {"type": "function", "function": {**FUNCTION, "parameters": "x"}},
            "tools[0].function.parameters",
        ),
        (
            {"type": "function", "function": {**FUNCTION, "description": 5}},
            "tools[0].function.description",
        ),
    ],
)
def test_a_tool_that_is_not_supported_is_refused_with_its_place(tool: Any, place: str) -> None:
    with pytest.raises(FieldError) as raised:
        read_tools(Fields({"tools": [tool]}))
    assert raised.value.field == place


def test_more_tools_than_openai_takes_are_refused() -> None:
    with pytest.raises(FieldError, match="tools must be a list"):
        read_tools(Fields({"tools": [TOOL] * (MOST_TOOLS + 1)}))


def test_one_call_at_a_time_cannot_be_asked_for() -> None:
    with pytest.raises(FieldError, match="parallel_tool_calls"):
        read_tools(Fields({"tools": [TOOL], "parallel_tool_calls": False}))
