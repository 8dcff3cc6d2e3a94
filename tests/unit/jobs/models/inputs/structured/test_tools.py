"""Tools of a generation request, and which of them must be called."""

from typing import Any

import pytest

from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.structured.caps import MOST_BYTES
from jobs.models.inputs.structured.tools import MOST_TOOLS, ToolUse, read_tools
from tests.support.cases import each

FUNCTION = {"name": "weather", "description": "of a city", "parameters": {"type": "object"}}
TOOL = {"type": "function", "function": FUNCTION}
STRICT = {"type": "function", "function": {**FUNCTION, "name": "strict", "strict": True}}
NAMED = {"type": "function", "function": {"name": "weather"}}


def tools(**fields: Any) -> ToolUse:
    return read_tools(Fields(fields))


def test_tools_are_passed_on_as_they_are() -> None:
    assert tools(tools=[TOOL], tool_choice="auto") == ToolUse((TOOL,), "auto")
    assert tools() == ToolUse()


def test_a_tool_that_is_not_supported_is_refused_with_its_place() -> None:
    cases = [
        ("weather", "tools[0].type"),
        ({"type": "custom", "custom": {"name": "x"}}, "tools[0].type"),
        ({"type": "function"}, "tools[0].function"),
        ({"type": "function", "function": {"name": "a b"}}, "tools[0].function.name"),
        ({"type": "function", "function": {**FUNCTION, "strict": 1}}, "tools[0].function.strict"),
        ({"type": "function", "function": {**FUNCTION, "x": 1}}, "tools[0].function.x"),
        (
            {"type": "function", "function": {**FUNCTION, "parameters": "x"}},
            "tools[0].function.parameters",
        ),
        (
            {"type": "function", "function": {**FUNCTION, "description": 5}},
            "tools[0].function.description",
        ),
    ]
    for (tool, place), case in each(cases):
        with case:
            with pytest.raises(FieldError) as raised:
                read_tools(Fields({"tools": [tool]}))
            assert raised.value.field == place


def test_more_tools_than_openai_takes_are_refused() -> None:
    with pytest.raises(FieldError, match="tools must be a list"):
        read_tools(Fields({"tools": [TOOL] * (MOST_TOOLS + 1)}))


def test_a_grammar_is_needed_where_the_model_is_not_free() -> None:
    cases = [
        ({}, ""),
        ({"parallel_tool_calls": False}, ""),
        ({"tools": [TOOL]}, ""),
        ({"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True}, ""),
        ({"tools": [STRICT], "tool_choice": "none"}, ""),
        ({"tools": [TOOL, STRICT]}, "tools"),
        ({"tools": [TOOL, STRICT], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "parallel_tool_calls": False}, "parallel_tool_calls"),
    ]
    for (fields, by), case in each(cases):
        with case:
            assert tools(**fields).constrained_by == by


def test_a_named_function_is_the_only_one_that_may_be_called() -> None:
    use = tools(tools=[TOOL, STRICT], tool_choice=NAMED)
    assert [function["name"] for function in use.callable] == ["weather"]
    assert use.is_forced


def test_a_choice_that_is_none_is_refused() -> None:
    cases = [
        ("any", "tool_choice"),
        (["auto"], "tool_choice"),
        ({"type": "allowed_tools", "allowed_tools": {}}, "tool_choice"),
        ({"type": "function"}, "tool_choice"),
        ({"type": "function", "function": {"name": "other"}}, "tool_choice.function.name"),
    ]
    for (choice, place), case in each(cases):
        with case:
            with pytest.raises(FieldError) as raised:
                tools(tools=[TOOL], tool_choice=choice)
            assert raised.value.field == place


def test_a_call_cannot_be_required_without_tools() -> None:
    with pytest.raises(FieldError, match="tool_choice"):
        tools(tool_choice="required")


def test_tools_that_make_a_grammar_have_a_bound_together() -> None:
    long = {"type": "function", "function": {**FUNCTION, "description": "x" * MOST_BYTES}}
    assert tools(tools=[long]).tools
    with pytest.raises(FieldError, match=f"tools has .* there may be {MOST_BYTES:,}"):
        tools(tools=[long], tool_choice="required")
