"""A chat model that calls the first tool once, as a model does that was trained with tools: the
weights of the tests are random. It is the `qwen3` of the pages."""

import json
from typing import Any


def predict(batch: list[dict[str, Any]]) -> list[str]:
    """Returns what the assistant says: a call of the first tool, then its result."""
    return [_next(one["messages"], one.get("tools")) for one in batch]


def _next(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
    last = messages[-1]
    if last["role"] == "tool":
        return f"The tool says: {last['content']}"
    if not tools:
        return "A channel that leads water to a mill."
    function = tools[0]["function"]
    call = {"name": function["name"], "arguments": _example(function.get("parameters", {}))}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def _example(schema: dict[str, Any]) -> Any:
    """Returns a value that is valid by a simple schema."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: _example(inner) for name, inner in schema.get("properties", {}).items()}
    return {"array": [], "integer": 1, "number": 1.5, "boolean": True}.get(schema["type"], "Rome")
