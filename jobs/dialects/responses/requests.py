"""Requests for responses: from a body to the input of a chat completion.

What would change the output and isn't served is refused with its name, here or where the input of
the chat completion is checked (jobs/models/inputs/generation.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.dialects.responses.items import Item, messages_of, read_input
from jobs.errors import Invalid
from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.request_fields import table

LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (
    LOGPROBS, "reasoning.encrypted_content", "file_search_call.results",
    "web_search_call.results", "web_search_call.action.sources", "code_interpreter_call.outputs",
    "computer_call_output.output.image_url", "message.input_image.image_url",
)  # fmt: skip
_PASSED_ON = table.shared("responses", "chat")
_NAMES = {
    "messages": "input", "response_format": "text.format", "reasoning_effort": "reasoning.effort",
}  # fmt: skip
"""Our fields, where those of the chat completion that they become have other names."""
_ECHOED = frozenset({
    "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "max_tool_calls",
})  # fmt: skip
"""Fields without an effect on the output, which a response repeats."""
SHOWN = _ECHOED | {
    "user", "instructions", "metadata", "max_output_tokens", "temperature", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "text", "tools", "tool_choice",
    "parallel_tool_calls", "reasoning",
}  # fmt: skip
"""All fields that a response repeats, as they were given or with what holds without them."""
_PAIRS, _KEY_LENGTH, _VALUE_LENGTH = 16, 64, 512  # of metadata


@dataclass(frozen=True, slots=True)
class Before:
    """Stored items that a request refers to."""

    history: Sequence[Item] = ()  #: of the conversation that it goes on with
    referenced: Mapping[str, Item] = field(default_factory=dict)  #: by their ids


NOTHING_BEFORE = Before()


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """Request for a response, without the fields of its call."""

    items: Sequence[Item]  #: of its input
    input: Mapping[str, Any]  #: of the chat completion
    shown: Mapping[str, Any]  #: what the response repeats of it


def read_request(
    value: Mapping[str, Any], before: Before = NOTHING_BEFORE, *, of_call: bool = False
) -> ResponseRequest:
    """Reads a request; of_call: fields of the call may be among its own. Raises FieldError."""
    table.check("responses", value, of_call=of_call)
    items = read_input(value.get("input"), before.referenced)
    input, shown = _input(Fields(value), value, [*before.history, *items])
    return ResponseRequest(items, input, shown)


def calls_tools(shown: Mapping[str, Any]) -> bool:
    """Returns True for a request whose model may call tools."""
    return bool(shown["tools"]) and shown["tool_choice"] != "none"


def renamed(error: Invalid) -> Invalid:
    """Returns the error of a chat completion's input with the names of a response's request."""
    if not error.faults:
        return error
    faults = []
    for fault in error.faults:
        if fault.loc:
            first, words = renamed_field(str(fault.loc[0]), fault.message)
            fault = replace(fault, loc=(first, *fault.loc[1:]), message=words)
        faults.append(fault)
    return Invalid("; ".join(fault.message for fault in faults), faults=faults)


def renamed_field(field: str, message: str) -> tuple[str, str]:
    """Returns a field of a chat completion, and a message about it, by the response's name."""
    name = next((each for each in _NAMES if field.startswith(each)), "")
    if not name:
        return field, message
    return _NAMES[name] + field.removeprefix(name), message.replace(name, _NAMES[name], 1)


def _input(
    fields: Fields, value: Mapping[str, Any], items: Sequence[Item]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the input of the chat completion, and what the response repeats of the request."""
    instructions = _text_or_none(value, "instructions")
    messages = messages_of(items)
    if instructions:
        messages.insert(0, {"role": "system", "content": instructions})
    passed_on = {name: value[name] for name in _PASSED_ON if value.get(name) is not None}
    input: dict[str, Any] = {"messages": messages, **passed_on}
    most = fields.whole("max_output_tokens", 1)
    if most is not None:
        input["max_completion_tokens"] = most
    top = _logprobs(fields, value, input)
    text = _text_format(value.get("text"), input)
    reasoning = _reasoning(value.get("reasoning"), input)
    tools = _tools(value.get("tools"), input)
    choice = _tool_choice(value.get("tool_choice"), input)
    parallel = value.get("parallel_tool_calls") is not False
    if not parallel:
        input["parallel_tool_calls"] = False
    shown = {
        **{name: value.get(name) for name in _ECHOED},
        **({"user": value["user"]} if value.get("user") is not None else {}),  # never null
        "instructions": instructions,
        "metadata": _metadata(value.get("metadata")),
        "max_output_tokens": most,
        "temperature": fields.number("temperature", 1.0, 0, 2),
        "top_p": fields.number("top_p", 1.0, 0, 1),
        "presence_penalty": fields.number("presence_penalty", 0.0, -2, 2),
        "frequency_penalty": fields.number("frequency_penalty", 0.0, -2, 2),
        "top_logprobs": top,
        "text": text,
        "reasoning": reasoning,
        "tools": tools,
        "tool_choice": choice,
        "parallel_tool_calls": parallel,
    }
    return input, shown


def _reasoning(reasoning: Any, input: dict[str, Any]) -> dict[str, Any]:
    """Takes an effort into the input; returns what the response repeats of it."""
    if not isinstance(reasoning, dict | None):
        raise FieldError("reasoning", "must be an object")
    effort = (reasoning or {}).get("effort")
    if effort is not None:
        input["reasoning_effort"] = effort
    return {"effort": effort, "summary": None}


def _text_or_none(value: Mapping[str, Any], name: str) -> str | None:
    text = value.get(name)
    if not isinstance(text, str | None):
        raise FieldError(name, "must be a text")
    return text


def _metadata(value: Any) -> dict[str, str]:
    pairs = value or {}
    if not isinstance(pairs, dict) or len(pairs) > _PAIRS or not all(map(_fits, pairs.items())):
        wanted = f"of up to {_PAIRS} texts, of {_KEY_LENGTH} and {_VALUE_LENGTH} characters"
        raise FieldError("metadata", f"must be an object {wanted}")
    return pairs


def _fits(pair: tuple[str, Any]) -> bool:
    key, value = pair
    if not isinstance(value, str) or "\0" in key + value:
        return False
    return 1 <= len(key) <= _KEY_LENGTH and len(value) <= _VALUE_LENGTH


def _logprobs(fields: Fields, value: Mapping[str, Any], input: dict[str, Any]) -> int:
    include = value.get("include")
    if not isinstance(include, list | None) or any(one not in _INCLUDABLE for one in include or ()):
        raise FieldError("include", f"must be a list of {', '.join(_INCLUDABLE)}")
    top = fields.whole("top_logprobs", 0, 20) or 0
    if top or LOGPROBS in (include or ()):
        input |= {"logprobs": True, "top_logprobs": top}
    return top


def _text_format(value: Any, input: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise FieldError("text", "must be an object")
    text = value or {}
    wanted = text.get("format") or {"type": "text"}
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "json_schema":
        names = ("name", "description", "schema", "strict")
        schema = {name: wanted[name] for name in names if wanted.get(name) is not None}
        input["response_format"] = {"type": kind, "json_schema": schema}
    elif kind == "json_object":
        input["response_format"] = {"type": kind}
    elif kind != "text":
        raise FieldError("text.format.type", "must be text, json_object or json_schema")
    return {"format": wanted, "verbosity": text.get("verbosity") or "medium"}


def _tools(value: Any, input: dict[str, Any]) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError("tools", "must be a list of tools")
    tools = [_tool(tool, f"tools[{n}]") for n, tool in enumerate(value)]
    if tools:
        input["tools"] = [_function_tool(tool) for tool in tools]
    return tools


def _tool(tool: Any, place: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise FieldError(f"{place}.type", 'must be "function": other tools aren\'t supported')
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", **{name: tool.get(name) for name in names}}


def _function_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "description", "parameters")
    function = {name: tool[name] for name in names if tool[name] is not None}
    if tool["strict"]:
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _tool_choice(value: Any, input: dict[str, Any]) -> Any:
    if value is None:
        return "auto"
    if isinstance(value, dict) and value.get("type") == "function":
        name = value.get("name")
        input["tool_choice"] = {"type": "function", "function": {"name": name}}
        return {"type": "function", "name": name}
    if not isinstance(value, str):
        raise FieldError("tool_choice", "must be a text, or an object of the type function")
    input["tool_choice"] = value
    return value
