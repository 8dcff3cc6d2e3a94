"""Messages of a generation request."""

from typing import Any

import pytest

from jobs.models.inputs.conversation import read_messages
from jobs.models.inputs.fields import FieldError
from tests.support.cases import each

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Turin"}'},
}


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


def test_a_message_that_no_template_takes_is_refused_with_its_place() -> None:
    cases = [
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
    ]
    for (message, place), case in each(cases):
        with case:
            with pytest.raises(FieldError) as raised:
                read_messages([message])
            assert raised.value.field == place


@pytest.mark.parametrize("arguments", ["{", "[]", 5])
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    call = {**CALL, "function": {"name": "weather", "arguments": arguments}}
    with pytest.raises(FieldError, match="arguments must be an object"):
        read_messages([{"role": "assistant", "tool_calls": [call]}])
