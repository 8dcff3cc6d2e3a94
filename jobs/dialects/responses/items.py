"""Items of responses: of requests as they are stored, and as messages of a chat completion."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs import ids
from jobs.models.inputs.fields import FieldError, is_empty_reasoning

Item = dict[str, Any]

REFERENCE = "item_reference"
"""Type of an item that names a stored one by its id."""
_NONE: Mapping[str, Item] = {}
_ROLES = ("user", "assistant", "system", "developer")
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco"}
_TEXT_PARTS = ("input_text", "output_text", "text", "refusal")


def references_of(value: Any) -> set[str]:
    """Returns the ids of the items that an `input` names in place of their content."""
    items = value if isinstance(value, list) else []
    named = (item.get("id") for item in items if _is_reference(item))
    return {id for id in named if isinstance(id, str)}


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == REFERENCE


def read_input(value: Any, referenced: Mapping[str, Item] = _NONE) -> list[Item]:
    """Returns the items of a request's `input`, each with an id. referenced: stored items, by the
    ids that it names. Raises FieldError."""
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise FieldError("input", "must be a text or a list of at least one item")
    items = read_items(value, "input", referenced)
    if not items:
        raise FieldError("input", "must hold more than reasoning without a content")
    return items


def read_items(
    values: Sequence[Any], field: str, referenced: Mapping[str, Item] = _NONE
) -> list[Item]:
    """Returns items as they are stored, without reasoning that is empty. field: that has them.
    Raises FieldError."""
    return [
        _read_item(item, f"{field}[{n}]", referenced)
        for n, item in enumerate(values)
        if not (isinstance(item, dict) and is_empty_reasoning(item))
    ]


def renewed(item: Item) -> Item:
    """Returns an item with another id."""
    return {**item, "id": ids.new_shown(_PREFIXES[item["type"]])}


def _read_item(item: Any, place: str, referenced: Mapping[str, Item]) -> Item:
    if _is_reference(item):
        return _stored_item(item, place, referenced)
    kind = item.get("type", "message") if isinstance(item, dict) else None
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        known = ", ".join((*_READERS, REFERENCE))
        raise FieldError(f"{place}.type", f"must be one of {known}: others aren't supported")
    return read(item, place)


def _stored_item(item: Mapping[str, Any], place: str, referenced: Mapping[str, Item]) -> Item:
    id = _required(item, "id", place)
    if id not in referenced:
        wanted = "is of no stored response's output: send the item itself"
        raise FieldError(f"{place}.id", wanted)
    return referenced[id]


def _message(item: Mapping[str, Any], place: str) -> Item:
    role = item.get("role")
    if role not in _ROLES:
        raise FieldError(f"{place}.role", f"must be one of {', '.join(_ROLES)}")
    kind = "output_text" if role == "assistant" else "input_text"
    content = item.get("content")
    if isinstance(content, str):
        parts = [_part(kind, content)]
    elif isinstance(content, list):
        parts = [
            _part(kind, _text(part, f"{place}.content[{n}]")) for n, part in enumerate(content)
        ]
    else:
        raise FieldError(f"{place}.content", "must be a text or a list of parts")
    message = {"id": _id(item, "message"), "type": "message", "role": role}
    return {**message, "content": parts, "status": "completed"}


def _part(kind: str, text: str) -> Item:
    part: Item = {"type": kind, "text": text}
    return {**part, "annotations": [], "logprobs": []} if kind == "output_text" else part


def _text(part: Any, place: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _TEXT_PARTS:
        raise FieldError(f"{place}.type", "must be a text's: other parts aren't supported")
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise FieldError(f"{place}.text", "must be a text")
    return text


def _function_call(item: Mapping[str, Any], place: str) -> Item:
    call = {name: _required(item, name, place) for name in ("call_id", "name", "arguments")}
    return {
        "id": _id(item, "function_call"),
        "type": "function_call",
        **call,
        "status": "completed",
    }


def _function_call_output(item: Mapping[str, Any], place: str) -> Item:
    output = item.get("output")
    if isinstance(output, list):
        texts = [_text(part, f"{place}.output[{n}]") for n, part in enumerate(output)]
        output = "\n".join(texts)
    if not isinstance(output, str):
        raise FieldError(f"{place}.output", "must be a text or a list of texts")
    call_id = _required(item, "call_id", place)
    read = {
        "id": _id(item, "function_call_output"),
        "type": "function_call_output",
        "call_id": call_id,
    }
    return {**read, "output": output, "status": "completed"}


def _required(item: Mapping[str, Any], name: str, place: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise FieldError(f"{place}.{name}", "must be a text")
    return value


def _id(item: Mapping[str, Any], kind: str) -> str:
    given = item.get("id")
    fits = isinstance(given, str) and 0 < len(given) <= 200 and "\0" not in given
    return str(given) if fits else ids.new_shown(_PREFIXES[kind])


_READERS = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
}


def messages_of(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Returns the messages of a chat completion: calls of functions join the assistant's message
    before them."""
    messages: list[dict[str, Any]] = []
    for item in items:
        if item["type"] == "message":
            text = _joined(item["content"])
            messages.append({"role": item["role"], "content": text})
        elif item["type"] == "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(_tool_call(item))
        else:
            call, output = item["call_id"], item["output"]
            messages.append({"role": "tool", "tool_call_id": call, "content": output})
    return messages


def _joined(parts: Sequence[Item]) -> str:
    return "\n".join(part["text"] for part in parts)


def _tool_call(item: Item) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}
