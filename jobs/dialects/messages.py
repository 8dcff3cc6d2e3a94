"""Anthropic's messages as generation inputs, and completions as Anthropic's messages.

Images, documents, thinking that holds any, and tools of a server are refused by name.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from jobs.models.inputs import chat
from jobs.models.inputs.fields import is_empty_reasoning
from jobs.models.inputs.generation import TokenUsage
from jobs.models.inputs.request_fields import table
from jobs.models.inputs.tool_calls import read_arguments

_STOPS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "content_filter": "refusal",
    "tool_calls": "tool_use",
}
_PASSED_ON = table.shared("messages", "chat") | {"max_tokens"}
_OF_A_LINE = frozenset({"model", "stream"})  # looked at where a batch's lines are read
_BETWEEN = re.compile(r"[.\[\]]+")  # the parts of a place
NO_THREADS = "thread_unsupported_request"
"""Code of a fault, and Anthropic's in the details of its error: clients go on without a thread."""

_CODES = {"thread": NO_THREADS}
PLACEHOLDER = [{"role": "user", "content": ""}]
"""Messages in place of those with a fault, so that the model's own check adds no other."""

_SCHEMA, _SCHEMA_HERE = "response_format.json_schema.schema", "output_config.format.schema"

_THINKING = {"adaptive": {}, "enabled": {"type": "enabled"}, "disabled": {"type": "disabled"}}
"""Field for the model, by the type of `thinking`; nothing where the model is to decide."""

ReportFault = Callable[..., None]
"""Gets the code and the message of a fault, and its place in the request."""


def input_of(params: Mapping[str, Any], fault: ReportFault) -> dict[str, Any]:
    """Returns the generation input of a Messages request, and reports what is wrong with it."""
    given = {name: part for name, part in params.items() if name not in _OF_A_LINE}
    for problem in table.problems("messages", given):
        code = _CODES.get(problem.field, "unsupported")
        fault(code, str(problem), *_place(problem.field))
    most = params.get("max_tokens")
    if type(most) is not int or most < 1:
        fault("range", "max_tokens must be a whole number, 1 or more", "max_tokens")
    value = {key: params[key] for key in sorted(_PASSED_ON) if params.get(key) is not None}
    if params.get("stop_sequences"):
        value["stop"] = params["stop_sequences"]
    try:
        value["messages"] = _messages(params.get("system"), params.get("messages"))
        value |= _tools(params.get("tools"), params.get("tool_choice"))
        value |= _output_format(params)
        value |= _thinking(params.get("thinking"))
    except _Unserved as refused:
        fault("unsupported", refused.message, *refused.loc)
        value["messages"] = PLACEHOLDER
    last = value["messages"][-1]
    if last["role"] == "assistant":
        if not last["content"].strip() or "tool_calls" in last:
            wanted = "the last message must be the user's, or a text that is gone on with"
            fault("unsupported", wanted, "messages")
        value |= {"add_generation_prompt": False, "continue_final_message": True}
    return value


def _place(field: str) -> list[str | int]:
    """Returns the place of a field by its path, `tools[0].name`."""
    return [int(part) if part.isdecimal() else part for part in _BETWEEN.split(field) if part]


class _Unserved(Exception):
    def __init__(self, message: str, *loc: str | int) -> None:
        self.message, self.loc = message, loc


def _messages(system: Any, messages: Any) -> list[dict[str, Any]]:
    """Converts the messages of a request. Raises _Unserved."""
    if not isinstance(messages, list) or not messages:
        raise _Unserved("messages must be an array of at least one message", "messages")
    converted: list[dict[str, Any]] = []
    if system:
        converted.append({"role": "system", "content": _text(system, "system")})
    for n, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant"):
            raise _Unserved('the role must be "user" or "assistant"', "messages", n, "role")
        convert = _of_user if role == "user" else _of_assistant
        converted += convert(message.get("content"), "messages", n, "content")
    return converted


def _of_user(content: Any, *loc: str | int) -> list[dict[str, Any]]:
    """Returns the results of tools, each a message, then the text."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    converted, rest = [], []
    for n, block in enumerate(_blocks(content, *loc)):
        if block.get("type") != "tool_result":
            rest.append(_text_of(block, *loc, n))
            continue
        call, result = block.get("tool_use_id"), block.get("content") or ""
        if not isinstance(call, str):
            raise _Unserved("must be the id of a tool_use block", *loc, n, "tool_use_id")
        text = _text(result, *loc, n, "content")
        converted.append({"role": "tool", "tool_call_id": call, "content": text})
    if rest or not converted:
        converted.append({"role": "user", "content": "".join(rest)})
    return converted


def _of_assistant(content: Any, *loc: str | int) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"role": "assistant", "content": content}]
    texts, calls = [], []
    for n, block in enumerate(_blocks(content, *loc)):
        if block.get("type") != "tool_use":
            texts.append(_text_of(block, *loc, n))
            continue
        name, given = block.get("name"), block.get("input")
        if not isinstance(name, str) or not isinstance(given, dict):
            raise _Unserved("needs a name, and an object as its input", *loc, n)
        function = {"name": name, "arguments": orjson.dumps(given).decode()}
        calls.append({"id": str(block.get("id", "")), "type": "function", "function": function})
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    return [{**message, "tool_calls": calls} if calls else message]


def _text(content: Any, *loc: str | int) -> str:
    """Returns a text, or the texts of blocks joined. Raises _Unserved."""
    if isinstance(content, str):
        return content
    blocks = enumerate(_blocks(content, *loc))
    return "".join(_text_of(block, *loc, n) for n, block in blocks)


def _blocks(content: Any, *loc: str | int) -> list[Mapping[str, Any]]:
    if not isinstance(content, list):
        raise _Unserved("must be a text or an array of text blocks", *loc)
    return [block if isinstance(block, dict) else {} for block in content]


def _text_of(block: Mapping[str, Any], *loc: str | int) -> str:
    kind, text = block.get("type"), block.get("text")
    if kind != "text" or not isinstance(text, str):
        if is_empty_reasoning(block):
            return ""
        other = f"blocks of type {kind!r}" if isinstance(kind, str) else "such blocks"
        raise _Unserved(f"{other} are not served here, text alone", *loc)
    return text


def _tools(tools: Any, choice: Any) -> dict[str, Any]:
    """Converts the tools of a request, and the choice among them. Raises _Unserved."""
    chosen = _tool_choice(choice)
    if not tools:
        if chosen.get("tool_choice") not in (None, "auto", "none"):
            raise _Unserved("needs tools", "tool_choice")
        return {}
    if not isinstance(tools, list):
        raise _Unserved("must be an array of tools", "tools")
    return {"tools": [_tool(tool, "tools", n) for n, tool in enumerate(tools)], **chosen}


def _tool_choice(choice: Any) -> dict[str, Any]:
    """Converts the choice among tools. Raises _Unserved."""
    if choice is None:
        return {}
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind not in ("auto", "none", "any", "tool"):
        message = 'the type must be "auto", "any", "tool" or "none"'
        raise _Unserved(message, "tool_choice", "type")
    converted: dict[str, Any] = {"tool_choice": "required" if kind == "any" else kind}
    if kind == "tool":
        if not isinstance(choice, dict) or not isinstance(choice.get("name"), str):
            raise _Unserved("must be the name of a tool", "tool_choice", "name")
        function = {"name": choice["name"]}
        converted["tool_choice"] = {"type": "function", "function": function}
    if isinstance(choice, dict) and choice.get("disable_parallel_tool_use"):
        converted["parallel_tool_calls"] = False
    return converted


def _output_format(params: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the format of the output: `output_config.format`, or `output_format` as it was
    named before. An effort changes nothing here. Raises _Unserved."""
    config = params.get("output_config") or {}
    if not isinstance(config, dict):
        raise _Unserved("must be an object", "output_config")
    wanted, place = config.get("format"), ["output_config", "format"]
    if wanted is None:
        wanted, place = params.get("output_format"), ["output_format"]
    if wanted is None:
        return {}
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        raise _Unserved('the type must be "json_schema"', *place, "type")
    if not isinstance(wanted.get("schema"), dict):
        raise _Unserved("must be a JSON schema", *place, "schema")
    schema = {"name": "answer", "schema": wanted["schema"], "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _thinking(thinking: Any) -> dict[str, Any]:
    """Converts what is said of reasoning. Raises _Unserved."""
    kind = thinking.get("type") if isinstance(thinking, dict) else thinking
    if kind is None:
        return {}
    if not isinstance(kind, str) or kind not in _THINKING:
        message = 'the type must be "adaptive", "enabled" or "disabled"'
        raise _Unserved(message, "thinking", "type")
    said = _THINKING[kind]
    return {"thinking": said} if said else {}


def _tool(tool: Any, *loc: str | int) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") not in (None, "custom"):
        raise _Unserved("tools of a server are not served here, those of a client alone", *loc)
    if not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), dict):
        raise _Unserved("a tool needs a name and an input_schema", *loc)
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    function |= {key: tool[key] for key in ("description", "strict") if tool.get(key)}
    return {"type": "function", "function": function}


def in_anthropics_words(message: str) -> str:
    """Returns an error's message with the names of fields that a Messages request has."""
    return message.replace(_SCHEMA, _SCHEMA_HERE)


def message_of(output: Any, id: str, model: Any) -> dict[str, Any]:
    """Returns the message of an output. Raises ValueError where that is neither a text nor a
    completion."""
    said = chat.answer(output)
    content = [tool_use(call, cut=said.finish == "length") for call in said.calls]
    if said.text or not content:
        content.insert(0, {"type": "text", "text": said.text})
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "stop_sequence" if said.stopped_by else _STOPS.get(said.finish, "end_turn"),
        "stop_sequence": said.stopped_by,
        "usage": usage_of(said.usage),
    }


def tool_use(call: Mapping[str, Any], *, cut: bool = False) -> dict[str, Any]:
    """Returns the block of a tool call. Raises ValueError where its arguments are no object.

    cut: the text ended at its longest length; a call that was cut has an empty input.
    """
    try:
        id, name, written = call["id"], call["function"]["name"], call["function"]["arguments"]
    except (TypeError, KeyError):
        raise ValueError("the model's tool call lacks id, name or arguments") from None
    given = read_arguments(written)
    if given is None and cut:
        given = {}
    if given is None:
        raise ValueError("the arguments of the model's tool call are no object")
    return {"type": "tool_use", "id": id, "name": name, "input": _writable(given, written)}


def _writable(given: dict[str, Any], written: str) -> Any:
    """Returns arguments as orjson writes them; with integers that 64 bits don't hold, as they are
    written."""
    try:
        orjson.dumps(given)
    except TypeError:
        return orjson.Fragment(written)
    return given


def usage_of(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """Returns Anthropic's usage, whose input has no cached tokens."""
    counted = chat.token_usage(usage) or TokenUsage()
    return {
        "input_tokens": counted.input - counted.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counted.cached,
        "output_tokens": counted.output,
    }
