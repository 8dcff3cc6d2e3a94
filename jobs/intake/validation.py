"""Validation of one item, and its form in the database."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from jobs.errors import Fault, Malformed
from jobs.models.inputs import chat, embeddings, tensor_inputs
from jobs.models.model import Model

MAX_CUSTOM_ID = 512  # characters
MAX_DEPTH = 200  # of an input: what is built around it adds a few levels, and 254 is the end
_CONTROL = re.compile("[\\x00-\\x1f\\x7f\\ud800-\\udfff]")
CUSTOM_ID = f"must be a string of 1 to {MAX_CUSTOM_ID} characters, none of them a control character"
_KEYS = frozenset({"custom_id", "input", "params"})


@dataclass(frozen=True, slots=True)
class Item:
    """Checked item."""

    custom_id: str | None
    input: bytes  #: JSON
    params: bytes | None  #: JSON
    inputs: int = 1  #: number of inputs that it stands for


def parse_json(raw: bytes | memoryview) -> Any:
    """Parses JSON. Raises Malformed with the place.

    Lone surrogates pass, where nothing else is wrong: the checks after this name each one.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as strict:
        try:
            return json.loads(bytes(raw), parse_constant=_no_constant, parse_float=_finite)
        except UnicodeDecodeError:
            raise Malformed("not valid JSON: it is not UTF-8; is it compressed?") from strict
        except (ValueError, RecursionError):
            raise Malformed(f"not valid JSON: {strict}") from strict


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):  # 1e400 would be stored as null
        raise ValueError(f"{digits} is out of range")
    return value


def storable(value: Any) -> bytes:
    """Returns the JSON text of a value. Raises ValueError(code, message) if it can't be stored."""
    try:
        raw = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        if "surrogates" in str(error):
            raise ValueError(
                "lone_surrogate", "holds a lone surrogate, which is no text"
            ) from error
        raise ValueError("not_storable", str(error)) from error
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _too_deep(orjson.loads(raw)):
        raise ValueError("too_deep", f"is nested more than {MAX_DEPTH} levels deep")
    if b"\\u0000" in raw and _holds_nul(orjson.loads(raw)):
        raise ValueError("nul", "holds a NUL character (\\u0000), which can't be stored")
    return raw


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(_holds_nul, value))


def refuse_input(model: Model, value: Any) -> tuple[str, str] | None:
    """Returns (code, message) where this model takes no such input.

    Checked at submission, and again by the worker for jobs with `on_invalid: fail_item`. The
    engine checks tensors when it prepares them.
    """
    if model.effective_task == "chat" and (no := chat.refuse(value)):
        return "chat", f"{model.key} {no}"
    if not isinstance(value, str):
        if model.effective_task == "embedding" and isinstance(value, list):
            return embeddings.refuse(value, model.spec.vocabulary)
        if model.spec.text_only:
            return "type", f"{model.key} takes {_taken(model)}, not {_type_name(value)}"
    if no := model.spec.input_problem(value):
        return "type", f"{model.key} {no}"
    return None


def _taken(model: Model) -> str:
    if model.effective_task != "embedding":
        return "a string"
    ids = "its token ids, " if model.spec.vocabulary else ""
    return f"a text, {ids}or a list of {'either' if ids else 'texts'}"


def _refuse_thoroughly(model: Model, value: Any) -> tuple[str, str] | None:
    no = refuse_input(model, value)
    return (
        tensor_inputs.refuse(model, value) if not no and model.effective_task == "tensors" else no
    )


def refuse_params(model: Model, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns (code, message) where this model takes no such parameters."""
    taken = model.params
    if taken is None:
        return None
    for name, value in params.items():
        wanted = taken.get(name)
        if wanted is None:
            known = ", ".join(taken) or "none"
            return "unknown_param", f"{model.key} takes no parameter {name!r}; it takes: {known}"
        if not wanted.accepts(value):
            code = "range" if type(value) is wanted.type else "type"
            return code, f"parameter {name!r} must be {wanted.expected}"
    return None


def too_long(model: Model, input: bytes, params: bytes | None) -> str | None:
    """Returns a message where an input and its parameters together are longer than this model
    takes."""
    size, most = len(input) + len(params or b""), model.limits.max_item_bytes
    if size <= most:
        return None
    what = "the input has" if params is None else "the input and its params have"
    return f"{what} {size} bytes; {model.key} takes {most}"


def check(
    value: Any, loc: tuple[str | int, ...], line: int | None, model: Model, strict: bool
) -> Item | list[Fault]:
    """Returns an item as it will be stored, or everything that is wrong with it.

    value: the input itself, or {"custom_id", "input", "params"}. strict: inputs that
    the model refuses are faults too.
    """
    if isinstance(value, str) and model.effective_task != "tensors":  # by far the most
        try:
            raw = storable(value)
        except ValueError as refused:
            code, message = refused.args
            return [Fault(loc, code, f"the input {message}", line)]
        short = len(raw) <= model.limits.max_item_bytes
        if short and (not strict or model.spec.text_only or not refuse_input(model, value)):
            return Item(None, raw, None)
    return _check_thoroughly(value, loc, line, model, strict)


def _check_thoroughly(
    value: Any, loc: tuple[str | int, ...], line: int | None, model: Model, strict: bool
) -> Item | list[Fault]:
    faults: list[Fault] = []

    def fault(key: str, code: str, message: str) -> None:
        faults.append(Fault((*loc, key) if wrapped else loc, code, message, line))

    wrapped = isinstance(value, dict)
    fields: dict[str, Any] = value if wrapped else {"input": value}
    for key in fields.keys() - _KEYS:
        fault(key, "unknown_key", "an item has custom_id, input and params, nothing else")

    custom_id = fields.get("custom_id")
    if custom_id is not None and not is_custom_id(custom_id):
        fault("custom_id", "custom_id", CUSTOM_ID)

    raw = b""
    if "input" not in fields:
        fault("input", "missing", "an item needs an input")
    else:
        try:
            raw = storable(fields["input"])
        except ValueError as refused:
            code, message = refused.args
            fault("input", code, f"the input {message}")
        if len(raw) > model.limits.max_item_bytes:
            most = model.limits.max_item_bytes
            fault("input", "too_long", f"the input has {len(raw)} bytes; {model.key} takes {most}")
        if strict and (no := _refuse_thoroughly(model, fields["input"])):
            fault("input", *no)

    params = fields.get("params")
    raw_params = None
    if params is not None:
        if not isinstance(params, dict):
            fault("params", "type", "params must be an object")
        elif no := refuse_params(model, params):
            fault("params", *no)
        else:
            raw_params = orjson.dumps(params)
    inputs = model.split_inputs(fields.get("input"))
    if not faults and (message := too_long(model, raw, raw_params)):
        fault("params", "too_long", message)
    return faults or Item(custom_id, raw, raw_params, len(inputs) if inputs else 1)


def _too_deep(value: Any, left: int = MAX_DEPTH) -> bool:
    if isinstance(value, dict):
        return left == 0 or any(_too_deep(inner, left - 1) for inner in value.values())
    if isinstance(value, list | tuple):
        return left == 0 or any(_too_deep(inner, left - 1) for inner in value)
    return False


def is_custom_id(value: Any) -> bool:
    """Returns True for a text that CUSTOM_ID describes."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_CUSTOM_ID:
        return False
    return _CONTROL.search(value) is None


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
