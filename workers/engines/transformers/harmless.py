"""Conversations of the same shape whose texts can't be part of a control token."""

import re
from typing import Any

_CHARACTER, _WORD = re.compile(r"\S"), re.compile(r"\w*")
_NAMED = ("role", "type")  # keys of values that templates compare
_VALUES = frozenset(
    {"system", "user", "assistant", "tool", "function", "object", "array", "string", "number"}
    | {"integer", "boolean", "null"}
)
_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "id", "type", "function", "strict"}
    | {"arguments", "description", "parameters", "properties", "required", "items", "enum"}
    | {"anyOf", "oneOf", "allOf", "default", "format", "$defs", "$ref", "additionalProperties"}
)  # of messages, tools and their schemas, which templates read


def harmless(value: Any, key: str = "") -> Any:
    """Returns messages or tools with other letters in their texts, and in keys that are names."""
    if isinstance(value, str):
        is_kept = key in _NAMED and value in _VALUES
        return value if is_kept else _CHARACTER.sub("x", value)
    if isinstance(value, list | tuple):
        return [harmless(one, key) for one in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for name, one in value.items():
        named = name if name in _KEYS else f"x{len(made)}"
        made[named] = harmless(one, name)
    return made


def harmless_variables(value: Any) -> Any:
    """Returns variables of a template, whose words stay: templates compare them."""
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else _CHARACTER.sub("x", value)
    if isinstance(value, list | tuple):
        return [harmless_variables(one) for one in value]
    if isinstance(value, dict):
        return {name: harmless_variables(one) for name, one in value.items()}
    return value
