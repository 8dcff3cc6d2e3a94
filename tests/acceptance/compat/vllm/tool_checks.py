"""Checks of calls of tools, in chats and responses."""

import json
from typing import Any

from tests.acceptance.compat.vllm.chat_checks import EMPLOYEE, finishes, valid
from tests.acceptance.compat.vllm.check import (
    ASKED,
    Answer,
    Check,
    chat,
    check,
    good,
    refused,
    response,
)

FILE = "openai/chat_completion/test_completion_with_function_calling.py::"
OF_RESPONSES = "openai/responses/test_function_call.py::"
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 10, "default": "Vienna"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "options": {"$ref": "#/$defs/Options"},
    },
    "required": ["city", "unit"],
    "$defs": {"Options": {"type": "object", "additionalProperties": False,
                          "properties": {"include_forecast": {"type": "boolean"}}}},
}  # fmt: skip
COORDINATES = {
    "type": "object",
    "properties": {"latitude": {"type": "integer", "maximum": 90, "minimum": -90},
                   "longitude": {"type": "integer", "maximum": 180, "minimum": -180}},
    "required": ["latitude", "longitude"], "additionalProperties": False,
}  # fmt: skip


def tool(name: str, schema: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def flat(name: str, schema: Any, **more: Any) -> Any:
    return {"type": "function", "name": name, "parameters": schema, **more}


def named(name: str) -> Any:
    return {"type": "function", "function": {"name": name}}


TOOLS = [tool("get_current_weather", WEATHER), tool("get_forecast", WEATHER)]
FLAT = [flat("get_current_weather", WEATHER), flat("get_forecast", WEATHER)]
DUMMY = [tool("dummy", EMPLOYEE)]
NOW = [tool("get_current_time", {"type": "object", "properties": {}, "required": []})]
LONG: Any = {"max_completion_tokens": 160, "temperature": 0.0}
FORCED = ["required", named("get_current_weather")]


def of_stream(answer: Answer) -> tuple[str, str, str]:
    """Name, arguments and text of a streamed chat with one call."""
    deltas = [one["delta"] for chunk in answer.body for one in chunk["choices"]]
    calls = [call["function"] for one in deltas for call in one.get("tool_calls") or ()]
    texts = [one.get("content") or "" for one in deltas]
    parts = ("".join(call.get(key) or "" for call in calls) for key in ("name", "arguments"))
    name, arguments = parts
    return name, arguments, "".join(texts)


def after_call(found: Any, arguments: str) -> Any:
    call = {"id": "call_1", "type": "function",
            "function": {"name": "get_current_time", "arguments": arguments}}  # fmt: skip
    return chat(
        [*ASKED, {"role": "assistant", "content": None, "tool_calls": [call]},
         {"role": "tool", "tool_call_id": "call_1", "content": "2026-01-01T00:00:00"}],
        max_completion_tokens=128, temperature=0.0,
    )  # fmt: skip


def calls_of(answer: Answer) -> list[Any]:
    return [one for one in answer["output"] if one["type"] == "function_call"]


def is_nested(answer: Answer) -> bool:
    """The events of a response open and close like brackets."""
    opened: list[str] = []
    for event in answer.body:
        kind = event["type"]
        if kind in ("response.created", "response.completed", "response.incomplete"):
            if kind != "response.created" and opened.pop() != "response":
                return False
            opened += ["response"] * (kind == "response.created")
        elif kind.endswith(".added"):
            opened.append(kind.removesuffix(".added"))
        elif kind.endswith(".delta"):
            opened += [kind] * (opened[-1] != kind)
        elif kind.endswith(".done"):
            ends = opened.pop()
            if ends not in (kind.removesuffix(".done"), kind.replace(".done", ".delta")):
                return False
    return not opened


def has_streamed_call(answer: Answer) -> bool:
    calls = [one for one in answer.body if one.get("item", {}).get("type") == "function_call"]
    deltas = [one["delta"] for one in answer.body
              if one["type"] == "response.function_call_arguments.delta"]  # fmt: skip
    added, done = calls[0]["item"], calls[-1]["item"]
    return (
        added["name"] == done["name"] == "get_weather"
        and added["arguments"] + "".join(deltas) == done["arguments"]
        and json.loads(done["arguments"])["latitude"] is not None
    )


LOCATED = [flat("get_weather", COORDINATES, strict=True)]
CHATS = (
    # `auto` is left out: whether a call comes depends on the model.
    check(FILE + "test_function_tool_use",
          *((chat(tools=TOOLS, tool_choice=choice, **LONG),
             good(lambda a: a.choice["message"]["tool_calls"])) for choice in FORCED),
          *((chat(tools=TOOLS, tool_choice=choice, stream=True, **LONG),
             good(lambda a: of_stream(a)[0])) for choice in FORCED)),
    check(FILE + "test_no_args_tool_call",
          (chat(tools=NOW, tool_choice="auto", **LONG), good(lambda a: a.choice["message"])),
          *((lambda found, text=text: after_call(found, text), good(lambda a: a.content))
            for text in ("{}", ""))),
    check(FILE + "test_named_tool_use",
          (chat(tools=DUMMY, tool_choice=named("dummy"), **LONG),
           good(lambda a: len(a.choice["message"]["content"]) == 0 and valid(
               a.choice["message"]["tool_calls"][0]["function"]["arguments"], EMPLOYEE))),
          (chat(tools=DUMMY, tool_choice=named("dummy"), stream=True, **LONG),
           good(lambda a: valid(of_stream(a)[1], EMPLOYEE) and not of_stream(a)[2]
                and len(finishes(a.body)) == 1)),
          differs="beside a call `content` is null, as of OpenAI, where vLLM has an empty text"),
    check(FILE + "test_inconsistent_tool_choice_and_tools",
          (chat(tool_choice=named("dummy"), **LONG), refused()),
          (chat(tools=DUMMY, tool_choice=named("other"), **LONG), refused()),
          (chat(tools=DUMMY, tool_choice={}, **LONG), refused())),
    check(FILE + "test_max_tokens_with_tool_choice_required",
          *((chat(tools=TOOLS, tool_choice=choice, max_completion_tokens=1, temperature=0.0),
             good(lambda a: a.choice["finish_reason"] == "length"
                  and a.choice["message"].get("tool_calls") is None)) for choice in FORCED)),
)  # fmt: skip
IN_RESPONSES = (
    check(OF_RESPONSES + "test_function_tool_use",
          (response("Weather?", tools=FLAT, tool_choice="required", temperature=0.0,
                    parallel_tool_calls=False),
           good(lambda a: json.loads(calls_of(a)[0]["arguments"]) is not None))),
    check(OF_RESPONSES + "test_max_tokens_with_tool_choice_required",
          (response("Weather?", tools=FLAT, tool_choice="required", max_output_tokens=60),
           good(lambda a: len(a["output"]) >= 1 and not calls_of(a)
                and a["incomplete_details"]["reason"] == "max_output_tokens")),
          differs="a call that is cut is shown as an incomplete item, with its arguments so far"),
    check(OF_RESPONSES + "test_named_tool_use",
          (response("Weather?", tools=LOCATED, tool_choice={"type": "function",
                                                            "name": "get_weather"}),
           good(lambda a: [one["name"] for one in calls_of(a)] == ["get_weather"])),
          (lambda found: response([
              {"role": "user", "content": "Weather?"}, calls_of(found[0])[0],
              {"type": "function_call_output", "call_id": calls_of(found[0])[0]["call_id"],
               "output": "20 C"}], max_output_tokens=40), good(lambda a: a.text))),
    # The call is required: whether one comes otherwise depends on the model.
    check(OF_RESPONSES + "test_function_calling_with_streaming_expected_arguments",
          (response("Weather?", tools=LOCATED, tool_choice="required", stream=True,
                    parallel_tool_calls=False), good(has_streamed_call))),
    check(OF_RESPONSES + "test_function_calling_with_streaming_types",
          (response("Weather?", tools=LOCATED, tool_choice="required", stream=True,
                    parallel_tool_calls=False), good(is_nested))),
)  # fmt: skip
CHECKS: tuple[Check, ...] = (*CHATS, *IN_RESPONSES)
