"""Constraints of a text, by the names of OpenAI and of vLLM; tools, and which must be called."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.structured.caps import MOST_BYTES, MOST_LEVELS
from jobs.models.inputs.structured.constraint import Constraint, read_constraint
from jobs.models.inputs.structured.tools import MOST_TOOLS, ToolUse, read_tools
from tests.support.cases import each

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def read(**fields: Any) -> Constraint | None:
    return read_constraint(Fields(fields))


def by_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, **more}}


def refused_at(reads: Callable[[Fields], object] = read_constraint, **fields: Any) -> str:
    with pytest.raises(FieldError) as raised:
        reads(Fields(fields))
    return raised.value.field


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_a_schema_of_openai_is_read_and_nothing_is_no_constraint() -> None:
    place = "response_format.json_schema.schema"
    strict = read(response_format=by_schema(SCHEMA, strict=True, description="of it"))
    assert strict == Constraint("json", SCHEMA, place, True, "a")
    assert read(response_format=by_schema(SCHEMA)) == Constraint("json", SCHEMA, place, False, "a")
    cases = [
        {},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"structured_outputs": {}},
        {"structured_outputs": {"regex": None, "json_object": False}},
        {"regex": None, "guided_json": None},
    ]
    for fields, case in each(cases):
        with case:
            assert read(**fields) is None


def test_every_name_of_a_constraint_is_read() -> None:
    cases = [
        ({"response_format": {"type": "json_object"}}, "json", {"type": "object"},
         "response_format"),
        ({"regex": "a+"}, "regex", "a+", "regex"),
        ({"choice": ["a", "b"]}, "choice", ["a", "b"], "choice"),
        ({"grammar": "start: x"}, "grammar", "start: x", "grammar"),
        ({"guided_regex": "a+"}, "regex", "a+", "guided_regex"),
        ({"guided_json": SCHEMA}, "json", SCHEMA, "guided_json"),
        ({"guided_json": orjson.dumps(SCHEMA).decode()}, "json", SCHEMA, "guided_json"),
        ({"structured_outputs": {"json": SCHEMA}}, "json", SCHEMA, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True}}, "json", {"type": "object"},
         "structured_outputs.json"),
        ({"structured_outputs": {"choice": ["x"], "disable_fallback": False}}, "choice", ["x"],
         "structured_outputs.choice"),
    ]  # fmt: skip
    for (fields, kind, value, place), case in each(cases):
        with case:
            found = read(**fields)
            assert (found.kind, found.value, found.field) == (kind, value, place)


def test_what_is_none_is_refused_with_its_place() -> None:
    cases = [
        ({"response_format": "json"}, "response_format.type"),
        ({"response_format": {"type": "json"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": by_schema(None)}, "response_format.json_schema.schema"),
        ({"response_format": by_schema(SCHEMA, strict="yes")},
         "response_format.json_schema.strict"),
        ({"response_format": by_schema(SCHEMA, name="a b")}, "response_format.json_schema.name"),
        ({"regex": ""}, "regex"),
        ({"regex": 5}, "regex"),
        ({"regex": "\ud800"}, "regex"),
        ({"choice": []}, "choice"),
        ({"choice": ["a", ""]}, "choice"),
        ({"choice": "a"}, "choice"),
        ({"grammar": ["x"]}, "grammar"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({"structured_outputs": {"regex": 0}}, "structured_outputs.regex"),
        ({"structured_outputs": {"json": 0.0}}, "structured_outputs.json"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"regex": "a", "choice": ["a"]}, "regex"),
        ({"regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ]  # fmt: skip
    for (fields, place), case in each(cases):
        with case:
            assert refused_at(**fields) == place


def test_what_is_beyond_the_bounds_is_refused() -> None:
    cases = [
        {"regex": "a" * MOST_BYTES},
        {"grammar": "a" * MOST_BYTES},
        {"choice": ["a" * 64] * 1000},
        {"guided_json": {"enum": ["a" * MOST_BYTES]}},
        {"guided_json": nested(MOST_LEVELS + 1)},
        {"guided_json": nested(100_000)},
    ]
    for fields, case in each(cases, name=list):
        with case:
            assert [refused_at(**fields)] == list(fields)
    assert read(guided_json=nested(MOST_LEVELS - 1))


def test_another_server_gets_it_as_it_takes_it() -> None:
    cases = [
        ({"regex": "a"}, {"structured_outputs": {"regex": "a"}}),
        ({"guided_choice": ["a"]}, {"structured_outputs": {"choice": ["a"]}}),
        ({"structured_outputs": {"json_object": True}},
         {"response_format": {"type": "json_object"}}),
        ({"response_format": by_schema(SCHEMA, strict=True)},
         {"response_format": by_schema(SCHEMA, strict=True)}),
        ({"guided_json": SCHEMA},
         {"response_format": {"type": "json_schema", "json_schema": {
             "name": "answer", "schema": SCHEMA, "strict": False}}}),
    ]  # fmt: skip
    for (fields, sent), case in each(cases):
        with case:
            found = read(**fields)
            assert found.as_upstream == sent


FUNCTION = {"name": "weather", "description": "of a city", "parameters": {"type": "object"}}


def function(**more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {**FUNCTION, **more}}


TOOL, STRICT = function(), function(name="strict", strict=True)
NAMED = {"type": "function", "function": {"name": "weather"}}


def tools(**fields: Any) -> ToolUse:
    return read_tools(Fields(fields))


def test_tools_are_passed_on_as_they_are_within_bounds() -> None:
    assert tools(tools=[TOOL], tool_choice="auto") == ToolUse((TOOL,), "auto")
    assert tools() == ToolUse()
    use = tools(tools=[TOOL, STRICT], tool_choice=NAMED)
    assert [function["name"] for function in use.callable] == ["weather"]
    assert use.is_forced
    long = function(description="x" * MOST_BYTES)
    assert tools(tools=[long]).tools
    with pytest.raises(FieldError, match=f"tools has .* there may be {MOST_BYTES:,}"):
        tools(tools=[long], tool_choice="required")
    with pytest.raises(FieldError, match="tools must be a list"):
        tools(tools=[TOOL] * (MOST_TOOLS + 1))


def test_a_tool_or_choice_that_is_not_supported_is_refused_with_its_place() -> None:
    cases = [
        ("weather", "tools[0].type"),
        ({"type": "custom", "custom": {"name": "x"}}, "tools[0].type"),
        ({"type": "function"}, "tools[0].function"),
        (function(name="a b"), "tools[0].function.name"),
        (function(strict=1), "tools[0].function.strict"),
        (function(parameters="x"), "tools[0].function.parameters"),
        (function(description=5), "tools[0].function.description"),
    ]
    for (tool, place), case in each(cases):
        with case:
            assert refused_at(read_tools, tools=[tool]) == place
    choices = [
        ("any", "tool_choice"),
        (["auto"], "tool_choice"),
        ({"type": "allowed_tools", "allowed_tools": {}}, "tool_choice"),
        ({"type": "function"}, "tool_choice"),
        ({"type": "function", "function": {"name": "other"}}, "tool_choice.function.name"),
    ]
    for (choice, place), case in each(choices):
        with case:
            assert refused_at(read_tools, tools=[TOOL], tool_choice=choice) == place
    assert refused_at(read_tools, tool_choice="required") == "tool_choice"


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
