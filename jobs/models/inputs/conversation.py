"""Messages of a generation request, checked and in the form that chat templates take.

Texts in parts become one text, `developer` becomes `system`, and the arguments of earlier tool
calls become objects.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from jobs.models.inputs.fields import EMPTY, FieldError, is_empty_reasoning, is_neutral
from jobs.models.inputs.tool_calls import read_arguments

_SHOWN = 100  # characters of a client's text in an error
_ROLES = ("system", "developer", "user", "assistant", "tool")
_MESSAGE_KEYS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal"})


def read_messages(value: Any, place: str = "messages") -> tuple[Mapping[str, Any], ...]:
    """Returns the messages of a conversation for a chat template. Raises FieldError."""
    if not isinstance(value, list) or not value:
        raise FieldError(place, "must be a list of at least one message")
    return tuple(_message(f"{place}[{n}]", message) for n, message in enumerate(value))


def has_several(messages: Any) -> TypeGuard[list[Any]]:
    """Returns True for a list of conversations, in place of one."""
    return isinstance(messages, list) and bool(messages) and isinstance(messages[0], list)


def check_last(messages: Sequence[Mapping[str, Any]], place: str) -> None:
    """Raises FieldError unless the last message can be gone on with."""
    last = messages[-1]
    if last["role"] != "assistant" or not last["content"] or "tool_calls" in last:
        wanted = "must end with a text of the assistant, which continue_final_message goes on with"
        raise FieldError(place, wanted)


def _message(place: str, message: Any) -> Mapping[str, Any]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _ROLES:
        raise FieldError(f"{place}.role", f"must be one of {', '.join(_ROLES)}")
    answers = role == "tool"  # whose id may be empty, as that of its call
    said = {
        key: value
        for key, value in message.items()
        if value not in EMPTY or (answers and key == "tool_call_id" and value == "")
    }
    for key, value in said.items():
        if key not in _MESSAGE_KEYS and not is_neutral(key, value):
            raise FieldError(f"{place}.{key[:_SHOWN]}", "isn't supported: leave it out")
    read = {key: value for key, value in said.items() if key in _MESSAGE_KEYS}
    calls = read.get("tool_calls")
    if calls is not None and role != "assistant":
        raise FieldError(f"{place}.tool_calls", "belongs to messages of the assistant")
    if answers and not isinstance(message.get("tool_call_id"), str):
        raise FieldError(f"{place}.tool_call_id", "must be the id of the tool call it answers")
    read["role"] = "system" if role == "developer" else role
    content = message.get("content")
    if content in (None, ""):
        content = read.pop("refusal", "" if calls else content)
    read["content"] = _text(f"{place}.content", content)
    if calls:
        read["tool_calls"] = _calls(f"{place}.tool_calls", calls)
    return read


def _text(place: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise FieldError(place, "must be a text or a list of parts")
    parts = (_part(f"{place}[{n}]", part) for n, part in enumerate(content))
    return "\n".join(text for text in parts if text is not None)


def _part(place: str, part: Any) -> str | None:
    """Returns the text of a part; None of one that says nothing."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in ("text", "refusal"):
        if kind and is_empty_reasoning(part):
            return None
        raise FieldError(f"{place}.type", 'must be "text": other parts aren\'t supported')
    text = part.get(kind)
    if not isinstance(text, str):
        raise FieldError(f"{place}.{kind}", "must be a text")
    return text


def _calls(place: str, calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise FieldError(place, "must be a list of tool calls")
    return [_call(f"{place}[{n}]", call) for n, call in enumerate(calls)]


def _call(place: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise FieldError(f"{place}.function", 'must be an object with "name" and "arguments"')
    arguments = read_arguments(function.get("arguments") or None)
    if arguments is None:
        raise FieldError(f"{place}.function.arguments", "must be an object as JSON text")
    read = {"name": function["name"], "arguments": arguments}
    return {"id": str(call.get("id", "")), "type": "function", "function": read}
