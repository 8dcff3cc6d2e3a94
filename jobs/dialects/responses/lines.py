"""Responses in batches: from the body of a line to an item, from its output to the response.

A line repeats no other's conversation, and its response is not stored: what is served of those that
are, is refused. A response of a batch is `"store": false`.
"""

from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import orjson

from jobs import ids
from jobs.dialects.completions import completion_of
from jobs.dialects.responses.items import references_of
from jobs.dialects.responses.objects import PREFIX, output_of, response_object
from jobs.dialects.responses.requests import SHOWN, ResponseRequest, calls_tools, read_request
from jobs.errors import MillraceError
from jobs.models.inputs import chat

_OF_A_LINE = frozenset({"model", "stream"})  # looked at where a line is read
_UNSERVED = {
    "background": "a batch is in the background: leave `background` out",
    "conversation": "a line of a batch goes on with no conversation: send its items",
    "previous_response_id": "a line of a batch goes on with no stored response: send its items",
}
_REFERENCES = "a line of a batch refers to no stored item: send the item itself"
_NOT_STORED = {"store": False, "background": False, "previous_response_id": None}


def unserved(body: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns a field of a line that no batch can serve, with the reason; None: there is none."""
    for name, why in _UNSERVED.items():
        if body.get(name):
            return name, why
    return ("input", _REFERENCES) if references_of(body.get("input")) else None


def read_line(body: Mapping[str, Any]) -> tuple[ResponseRequest, Mapping[str, Any]]:
    """Returns the request of a line, and the fields of it that its response needs. Raises
    FieldError."""
    given = {name: value for name, value in body.items() if name not in _OF_A_LINE}
    request = read_request(given)
    return request, {name: given[name] for name in SHOWN if given.get(name) is not None}


def response_of(
    output: bytes, reply: Mapping[str, Any], batch: Mapping[str, Any], seq: int, tokens: int
) -> dict[str, Any]:
    """Returns the response of a line: the same one, whenever it is read.

    reply: fields that `read_line` returned. batch: its prefix, model and time of creation. tokens:
    of the input, where the output counts none.
    """
    shown = {**read_request({"input": "-", **reply}).shown, **_NOT_STORED, "model": batch["model"]}
    completion = _completion(output)
    if tokens and not completion.get("usage"):
        completion = {**completion, "usage": {"prompt_tokens": tokens}}
    id = ids.show(PREFIX, uuid5(NAMESPACE_URL, f"{batch['prefix']}{seq}"))
    made, ended = batch["created"], completion.get("created")
    gained = output_of(
        completion,
        id.removeprefix(f"{PREFIX}_"),
        tools=calls_tools(shown),
        ended_at=max(made, ended) if isinstance(ended, int) else made,
    )
    return response_object(id, made, shown, gained)


def output_problem(output: Any) -> str | None:
    """Returns why no response can be made of a model's output, or None."""
    try:
        chat.answer(output)
    except ValueError:
        return None  # a text
    try:
        if not isinstance(output, str):
            output_of(output, "", tools=False, ended_at=0)
    except MillraceError as error:
        return error.detail
    return None


def _completion(output: bytes) -> Mapping[str, Any]:
    """Returns the completion of an output; one that is none is a text, as in a batch of chats."""
    try:
        completion = completion_of(output, tools=False)
        chat.answer(completion)
    except (MillraceError, ValueError):
        return completion_of(orjson.dumps(output.decode()), tools=False)
    return completion
