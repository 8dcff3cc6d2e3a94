"""Anthropic's messages as generation inputs, and back."""

from contextlib import closing
from typing import Any

import orjson

from jobs import ids
from jobs.dialects import dialect
from jobs.dialects.messages import input_of, message_of
from jobs.intake.spool import Intake
from jobs.models.inputs.generation import Rendering, parse
from jobs.models.model import Model
from tests.support.cases import each

BASE: dict[str, Any] = {"max_tokens": 10, "messages": [{"role": "user", "content": "x"}]}
TOOL = {"name": "weather", "description": "of a city", "input_schema": {"type": "object"}}


def converted(**params: Any) -> dict[str, Any]:
    faults: list[Any] = []
    value = input_of({**BASE, **params}, lambda *fault: faults.append(fault))
    assert faults == []
    return value


def refused(**params: Any) -> list[Any]:
    faults: list[Any] = []
    input_of({**BASE, **params}, lambda code, message, *where: faults.append(where))
    return faults


def test_blank_lines_at_the_end_are_no_requests() -> None:
    request = {"custom_id": "a", "params": {**BASE, "model": "writer"}}
    lines = [orjson.dumps(request), b"\n", b"\n"]
    model = Model("writer", "1", "echo_chat")
    with closing(Intake(ids.new(), "acme", model, strict=True, max_items=9)) as taken:
        assert dialect("anthropic").read_items(lambda _: taken, lines, {}).total == 1


def test_parameters_and_system_are_converted() -> None:
    system = [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}]
    left_out = {"metadata": {"user_id": "u"}}
    system.append({"type": "text", "text": "kind."})
    asked = {"system": system, "stop_sequences": ["END"], "temperature": 0.5, "top_k": 3}
    messages = [{"role": "system", "content": "Be kind."}, *BASE["messages"]]
    wanted = {"max_tokens": 10, "temperature": 0.5, "top_k": 3, "stop": ["END"]}
    assert converted(**asked, **left_out) == wanted | {"messages": messages}


def test_tools_and_their_results_are_converted() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Turin"}}
    sun = [{"type": "text", "text": "sun"}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": sun}
    value = converted(
        tools=[TOOL],
        tool_choice={"type": "auto"},
        messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
        ],
    )
    call = {"name": "weather", "arguments": '{"city":"Turin"}'}
    assert value["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "t1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "sun"},
        {"role": "user", "content": "Well?"},
    ]
    assert value["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert parse(value).tool_use.choice == "auto"


def test_what_says_nothing_in_an_earlier_message_changes_nothing() -> None:
    text = {"type": "text", "text": "y", "citations": None}
    thoughts = [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "redacted_thinking", "data": ""},
    ]
    earlier = {"id": "msg_1", "type": "message", "stop_reason": "end_turn", "usage": {}}
    messages = [
        *BASE["messages"],
        {**earlier, "role": "assistant", "content": [*thoughts, text]},
        {"role": "user", "content": [text]},
    ]
    plain = [{"role": "assistant", "content": "y"}, {"role": "user", "content": "y"}]
    assert converted(messages=messages)["messages"] == [*BASE["messages"], *plain]


def test_what_is_not_served_is_refused_with_its_place() -> None:
    def said(role: str, *content: Any) -> dict[str, Any]:
        return {"messages": [{"role": role, "content": [*content] or "x"}]}

    schemaless = {"format": {"type": "json_schema"}}
    cases = [
        ({"thinking": {"type": "some"}}, "thinking.type"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0"),
        ({"tools": [{"name": "x"}]}, "tools.0"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"output_config": 5}, "output_config"),
        ({"output_config": {"invented": 1}}, "output_config.invented"),
        ({"output_config": {"format": {"type": "x"}}}, "output_config.format.type"),
        ({"output_config": schemaless}, "output_config.format.schema"),
        ({"output_format": {"type": "json_object"}}, "output_format.type"),
        ({"messages": []}, "messages"),
        (said("system"), "messages.0.role"),
        (said("user", {"type": "image"}), "messages.0.content.0"),
        (said("assistant", {"type": "thinking", "thinking": "y"}), "messages.0.content.0"),
        (said("user", {"type": "tool_result"}), "messages.0.content.0.tool_use_id"),
        (said("assistant", {"type": "tool_use"}), "messages.0.content.0"),
    ]
    for (params, where), case in each(cases):
        with case:
            assert [".".join(map(str, place)) for place in refused(**params)] == [where]


def test_thinking_reaches_chat_templates_and_is_no_effort() -> None:
    """`adaptive` leaves it to the model: workers of 0.2.0 take that too."""
    for kind, thinks in (("adaptive", None), ("enabled", True), ("disabled", False)):
        thinking = {"type": kind, "budget_tokens": 1024, "display": "omitted"}
        given = converted(thinking=thinking)
        said = {} if thinks is None else {"thinking": {"type": kind}}
        assert given == converted() | said
        variables = {} if thinks is None else {"enable_thinking": thinks}
        assert parse(given).rendering.template_variables == variables


def test_a_choice_of_tools_and_a_format_are_converted_and_an_effort_changes_nothing() -> None:
    alone = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    named = {"type": "function", "function": {"name": "weather"}}
    cases = [
        ({"type": "any"}, {"tool_choice": "required"}),
        (alone, {"tool_choice": named, "parallel_tool_calls": False}),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
    ]
    for (choice, expected), case in each(cases):
        with case:
            value = converted(tools=[TOOL | {"strict": True}], tool_choice=choice)
            assert value["tools"][0]["function"]["strict"]
            assert expected.items() <= value.items()
            assert parse(value)
    wanted: Any = {"type": "json_schema", "schema": {"type": "object"}}
    by_config = {"output_config": {"format": wanted, "effort": "low"}}
    for given in (by_config, {"output_format": wanted}):
        constraint = parse(converted(**given)).constraint
        assert (constraint.kind, constraint.value) == ("json", wanted["schema"])
        assert constraint.strict
    assert converted(output_config={"effort": "high"}) == converted()


def test_a_last_message_of_the_assistant_is_gone_on_with() -> None:
    begun = [*BASE["messages"], {"role": "assistant", "content": "It is "}]
    value = converted(messages=begun)
    assert parse(value).rendering == Rendering(
        add_generation_prompt=False, continue_final_message=True
    )
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
    for content, case in each(["", " ", [use]]):
        with case:
            messages = [*BASE["messages"], {"role": "assistant", "content": content}]
            assert refused(messages=messages) == [("messages",)]


def test_a_completion_becomes_a_message() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    said = {"role": "assistant", "content": "Well.", "tool_calls": [call]}
    cached = {"cached_tokens": 4}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": cached}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
    message = message_of({"choices": [choice], "usage": usage}, "msg_1", "m")
    assert message["content"] == [
        {"type": "text", "text": "Well."},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["input_tokens"] == 3
    assert message["usage"]["cache_read_input_tokens"] == 4


def test_arguments_of_a_call_keep_integers_that_64_bits_do_not_hold() -> None:
    for written in ('{"n": 100000000000000000000000000001}', '{"n": -9223372036854775809}'):
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": written}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        block = message_of({"choices": [choice]}, "msg_1", "m")["content"][0]
        assert f'"input":{written}' in orjson.dumps(block).decode()
