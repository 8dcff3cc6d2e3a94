"""Anthropic's Message Batches: a line is a request, a result a message.

Tools, images, documents, thinking and streams are refused by name.
"""

from typing import Any
from uuid import NAMESPACE_URL, uuid5

import orjson

from jobs import ids
from jobs.dialects.protocol import BatchRequest, Lines, OpenIntake, Part, Row
from jobs.errors import Fault, Malformed
from jobs.intake import validation
from jobs.intake.spool import Intake
from jobs.models.inputs import chat

_STOPS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
_PASSED_ON = ("max_tokens", "temperature", "top_p", "top_k")
_IGNORED = frozenset({"service_tier", "stream", "inference_geo"})
_KNOWN = frozenset(
    {*_PASSED_ON, *_IGNORED, "model", "messages", "system", "stop_sequences", "metadata"}
)
_ABSENT: tuple[Any, ...] = (False, None, [], {})
_REFUSED = [{"role": "user", "content": ""}]
"""Placeholder for messages with a fault, so that the model's own check adds no other."""

Loc = tuple[str | int, ...]


class Anthropic:
    """A line is `{"custom_id", "params"}`, params the body of a Messages request."""

    def read_items(self, open_intake: OpenIntake, lines: Lines, batch: BatchRequest) -> Intake:
        """Reads the lines of an input."""
        taken: Intake | None = None
        model = ""
        for number, line in enumerate(lines, start=1):
            request, faults = _parsed(line, number)
            if taken is None:
                model = model_of(request)
                taken = open_intake(model)
            if faults:
                taken.refuse(*faults)
            else:
                value, faults = item_of(request, model, (), number)
                taken.add(value, (), number)
                taken.fault(*faults)
        taken = taken or open_intake("")
        taken.finish(lambda seq: ((), seq + 1))
        return taken

    def result_line(self, row: Row, unit: str, batch: BatchRequest) -> tuple[Part, bytes]:
        """Returns a result line. batch: `model`, as the requests named it."""
        result = {"custom_id": row["custom_id"], "result": _result(row, batch)}
        return "results", orjson.dumps(result)


def _parsed(line: bytes | None, number: int) -> tuple[Any, list[Fault]]:
    if line is None:
        return None, [Fault((), "too_long", "the line is longer than any item may be", number)]
    try:
        return validation.parse_json(line), []
    except Malformed as error:
        return None, [Fault((), "malformed", error.detail, number)]


def model_of(request: Any) -> str:
    """Returns the model that a request names; "": none."""
    params = request.get("params") if isinstance(request, dict) else None
    model = params.get("model") if isinstance(params, dict) else None
    return model if isinstance(model, str) else ""


def item_of(
    request: Any, model: str, loc: Loc, line: int | None = None
) -> tuple[dict[str, Any], list[Fault]]:
    """Returns the item of a request, and its faults. model: of all the batch."""
    faults: list[Fault] = []

    def fault(code: str, message: str, *where: str | int) -> None:
        """Adds a fault at this place of the request."""
        faults.append(Fault((*loc, *where), code, message, line))

    fields = request if isinstance(request, dict) else {}
    for key in fields.keys() - {"custom_id", "params"}:
        fault("unknown_key", "a request has custom_id and params, nothing else", key)
    if fields.get("custom_id") is None:
        fault("missing", "a request needs a custom_id", "custom_id")
    params = fields.get("params")
    if not isinstance(params, dict):
        fault("missing", "a request needs params, an object", "params")
        return {"custom_id": fields.get("custom_id"), "input": {"messages": _REFUSED}}, faults
    if params.get("model") != model:
        message = f"all requests of a batch name one model here; the first named {model!r}"
        fault("mismatched_model", message, "params", "model")
    for key in params.keys() - _KNOWN:
        if params[key] not in _ABSENT:
            fault("unsupported", "this is not served here; leave it out", "params", key)
    if params.get("stream"):
        fault("unsupported", "a batch can't stream; leave it out", "params", "stream")
    most = params.get("max_tokens")
    if type(most) is not int or most < 1:
        fault("range", "max_tokens must be a whole number, 1 or more", "params", "max_tokens")
    value: dict[str, Any] = {key: params[key] for key in _PASSED_ON if params.get(key) is not None}
    if params.get("stop_sequences"):
        value["stop"] = params["stop_sequences"]
    try:
        value["messages"] = _messages(params.get("system"), params.get("messages"))
    except _Unserved as refused:
        fault("unsupported", refused.message, "params", *refused.loc)
        value["messages"] = _REFUSED
    return {"custom_id": fields.get("custom_id"), "input": value}, faults


class _Unserved(Exception):
    def __init__(self, message: str, *loc: str | int) -> None:
        self.message, self.loc = message, loc


def _messages(system: Any, messages: Any) -> list[dict[str, str]]:
    """Converts the messages of a request. Raises _Unserved."""
    if not isinstance(messages, list) or not messages:
        raise _Unserved("messages must be an array of at least one message", "messages")
    converted = [{"role": "system", "content": _text(system, "system")}] if system else []
    for n, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant"):
            raise _Unserved('the role must be "user" or "assistant"', "messages", n, "role")
        content = _text(message.get("content"), "messages", n, "content")
        converted.append({"role": role, "content": content})
    return converted


def _text(content: Any, *loc: str | int) -> str:
    """Returns a text, or the texts of blocks joined. Raises _Unserved."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _Unserved("must be a text or an array of text blocks", *loc)
    for n, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind != "text" or not isinstance(block.get("text"), str):
            other = f"blocks of type {kind!r}" if isinstance(kind, str) else "such blocks"
            raise _Unserved(f"{other} are not served here, text alone", *loc, n)
    return "".join(block["text"] for block in content)


def _result(row: Row, batch: BatchRequest) -> dict[str, Any]:
    outcome = row["outcome"]
    if outcome == "succeeded":
        try:
            return {"type": "succeeded", "message": _message(row, batch)}
        except ValueError as error:
            return _errored("api_error", str(error))
    if outcome == "failed":
        failure = orjson.loads(row["error"] or "{}")
        kind = "invalid_request_error" if failure.get("code") == "invalid_input" else "api_error"
        return _errored(kind, f"{failure.get('code')}: {failure.get('message')}")
    return {"type": "canceled" if outcome == "cancelled" else outcome}


def _errored(kind: str, message: str) -> dict[str, Any]:
    error = {"type": kind, "message": message}
    return {"type": "errored", "error": {"type": "error", "error": error, "request_id": None}}


def _message(row: Row, batch: BatchRequest) -> dict[str, Any]:
    said = chat.answer(orjson.loads(row["output"]))
    usage = said.usage or {}
    # The same result has the same id, whenever it is read.
    id = uuid5(NAMESPACE_URL, f"{batch.get('id')}/{row['seq']}")
    return {
        "id": ids.show("msg", id),
        "type": "message",
        "role": "assistant",
        "model": batch.get("model"),
        "content": [{"type": "text", "text": said.text}],
        "stop_reason": _STOPS.get(said.finish, "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": usage.get("prompt_tokens") or 0,
            "output_tokens": usage.get("completion_tokens") or 0,
        },
    }
