"""Tools as texts of a conversation, for chat templates that know none: the format of Hermes, which
jobs/models/inputs/tool_calls.py reads in the answer."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

Message = Mapping[str, Any]

_TEXT = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def with_tools(
    messages: Sequence[Message], tools: Sequence[Message], *, system: bool
) -> list[Message]:
    """Returns a conversation that tells the model of tools, and in which their calls and results
    are texts.

    system: the template takes a system message; without one, the first message tells of them.
    """
    told: list[Message] = []
    for is_results, run in groupby(messages, lambda message: message["role"] == "tool"):
        if is_results:
            results = [f"<tool_response>\n{one['content']}\n</tool_response>" for one in run]
            told.append({"role": "user", "content": "\n".join(results)})
        else:
            told += map(_with_calls, run)
    return _begin(told, tools, system) if tools else told


def _with_calls(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    texts = [message["content"], *(_call(call["function"]) for call in calls)]
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": "\n".join(text for text in texts if text)}


def _call(function: Message) -> str:
    written = {"name": function["name"], "arguments": function["arguments"]}
    return f"<tool_call>\n{json.dumps(written, ensure_ascii=False)}\n</tool_call>"


def _begin(messages: list[Message], tools: Sequence[Message], system: bool) -> list[Message]:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = _TEXT.format(tools=lines)
    first, *others = messages
    if first["role"] == "system":
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *others]
    if system:
        return [{"role": "system", "content": text}, *messages]
    return [{**first, "content": f"{text}\n\n{first['content']}"}, *others]
