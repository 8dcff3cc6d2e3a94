"""Validation of one item, and its form in the database."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from jobs.errors import Fault, Invalid, Malformed, without_surrogates
from jobs.immutable import immutable
from jobs.intake import integers
from jobs.models.engines.engine_spec import no_problem
from jobs.models.inputs import chat, embeddings, tensor_inputs
from jobs.models.model import Model

MAX_CUSTOM_ID = 512  # characters
MAX_DEPTH = 200  # of an input: what is built around it adds a few levels
_WRITER_DEPTH = 254  # levels that orjson writes
_MOST_SHOWN = 64  # characters of a field's name
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")  # the escape, not its letters
_IS_NUL, _IS_SURROGATE = re.compile("\0"), re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\\x00-\\x1f\\x7f\\ud800-\\udfff]")
CUSTOM_ID = f"must be a string of 1 to {MAX_CUSTOM_ID} characters, none of them a control character"
ADDRESSES = ("https://", "http://", "s3://")
"""Beginnings of addresses from which inputs are fetched."""
_KEYS = frozenset({"custom_id", "input", "params"})
_CHAT_ITEM = '{"input": {"messages": [{"role": "user", "content": "Hello"}]}}'
_BARE = frozenset({"messages", "prompt"})  # keys of a conversation that lacks its item


@immutable
class Item:
    """Checked item."""

    custom_id: str | None
    input: bytes  #: JSON
    params: bytes | None  #: JSON
    inputs: int = 1  #: number of inputs that it stands for


def parse_json(raw: bytes | memoryview) -> Any:
    """Parses JSON in UTF-8. Raises Malformed with the place, and Invalid with those of integers
    that would be rounded.

    Lone surrogates pass, where nothing else is wrong: the checks after this name each one.
    """
    # No call of Python in nearly all texts: a tenth of the bytes tell that no number is so long.
    if integers.SAMPLE in bytes(raw[:: integers.STEP]).translate(integers.AS_ZERO):
        integers.refuse(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as strict:
        error = Malformed(f"not valid JSON: {strict}")
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError:
        raise Malformed("not valid JSON: it is not UTF-8; is it compressed?") from None
    if not _SURROGATE.search(raw):
        raise error
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        raise error from None


NUL = "holds a NUL character, U+0000: remove it"
_LONE_SURROGATE = "holds a lone surrogate, which is no text"


def parse_call(raw: bytes) -> Any:
    """Parses the body of a call, as `parse_json`. Raises Invalid where a text holds a NUL, with its
    place in the client's own words: calls take what jobs do, which can't store one."""
    value = parse_json(raw)
    if b"\\u0000" in raw:
        _refuse_texts(value, _IS_NUL, "nul", NUL)
    return value


def refuse_surrogates(value: Any) -> None:
    """Raises Invalid where a text of a request's body holds a lone surrogate, with its place: what
    is stored of it without further checks must be text."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:  # too deep, where it is no surrogate: another error
        _refuse_texts(value, _IS_SURROGATE, "lone_surrogate", _LONE_SURROGATE)


def _refuse_texts(value: Any, what: re.Pattern[str], code: str, words: str) -> None:
    if (place := _place_of(what, value)) is not None:
        message = f"{place or 'the body'} {words}"
        raise Invalid(message, faults=[Fault((place or "body",), code, message)])


def _place_of(
    what: re.Pattern[str], value: Any, place: str = "", levels: int = MAX_DEPTH
) -> str | None:
    """Returns the path of the first text with such a character; of a field whose name has one, its
    object's; None where there is none. levels: those below are too deep, which is another error."""
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, str):
        return place if what.search(value) else None
    if isinstance(value, dict):
        if any(map(what.search, value)):
            return place
        parts = ((f"{place}.{_shown(name)}".lstrip("."), inner) for name, inner in value.items())
    elif isinstance(value, list):
        parts = ((f"{place}[{n}]", inner) for n, inner in enumerate(value))
    for path, inner in parts if levels else ():
        if (found := _place_of(what, inner, path, levels - 1)) is not None:
            return found
    return None


def _shown(name: str) -> str:
    return without_surrogates(name[:_MOST_SHOWN])


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):  # 1e400 would be stored as null
        raise ValueError(f"{digits} is out of range")
    return value


def storable(value: Any) -> bytes:
    """Returns the JSON text of a value. Raises ValueError(code, message) if it can't be stored.

    No Python code runs for each part of the value.
    """
    try:
        raw = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        if "surrogates" in str(error):
            raise ValueError("lone_surrogate", _LONE_SURROGATE) from error
        if "ecursion" in str(error):
            raise _too_deep() from error
        raise ValueError("not_storable", str(error)) from error
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_too_deep(value):
        raise _too_deep()
    if b"\\u0000" in raw and _NUL.search(raw):
        raise ValueError("nul", "holds a NUL character (\\u0000), which can't be stored")
    return raw


def storable_texts(values: Sequence[Any]) -> list[bytes] | None:
    """Returns the JSON texts of values that are all plain texts; None where `storable` has to look
    at each, and where there is none."""
    if set(map(type, values)) != {str}:
        return None
    try:
        raws = list(map(orjson.dumps, values))
    except orjson.JSONEncodeError:
        return None
    return None if b"\\u0000" in b"".join(raws) else raws


def _too_deep() -> ValueError:
    return ValueError("too_deep", f"is nested more than {MAX_DEPTH} levels deep")


def _is_too_deep(value: Any) -> bool:
    """Returns True if the writer finds no room for the levels that are missing to its own bound."""
    for _ in range(_WRITER_DEPTH - MAX_DEPTH):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False


def refuse_input(model: Model, value: Any) -> tuple[str, str] | None:
    """Returns (code, message) where this model takes no such input.

    Checked at submission, and again by the worker for jobs with `on_invalid: fail_item`. The
    engine checks tensors when it prepares them.
    """
    spec = model.spec
    if spec.generates:
        problem = spec.input_problem(value)
        return ("generation", f"{model.key} {problem}") if problem else None
    if model.effective_task == "chat" and (no := chat.refuse(value)):
        return "chat", f"{model.key} {no}"
    if not isinstance(value, str):
        if model.effective_task == "embedding" and isinstance(value, list):
            return embeddings.refuse(value, spec.vocabulary)
        if spec.text_only:
            return "type", f"{model.key} takes {_taken(model)}, not {_type_name(value)}"
    if no := spec.input_problem(value):
        return "type", f"{model.key} {no}"
    return None


def takes_any_text(model: Model) -> bool:
    """Returns True if `refuse_input` refuses no text."""
    return model.spec.input_problem is no_problem and model.effective_task != "chat"


def _taken(model: Model) -> str:
    if model.effective_task != "embedding":
        return "a string"
    ids = "its token ids, " if model.spec.vocabulary else ""
    return f"a text, {ids}or a list of {'either' if ids else 'texts'}"


def is_address(value: object) -> bool:
    """Returns True for an input that models with `fetch` take for an address."""
    return isinstance(value, str) and value.startswith(ADDRESSES)


def refuse_item(model: Model, value: Any) -> tuple[str, str] | None:
    """Returns (code, message) where this model takes no such input of an item: as `refuse_input`,
    but for addresses, behind which anything may be."""
    return None if model.fetch and is_address(value) else refuse_input(model, value)


def _refuse_thoroughly(model: Model, value: Any) -> tuple[str, str] | None:
    no = refuse_item(model, value)
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
        if short and (not strict or model.spec.text_only or not refuse_item(model, value)):
            return Item(None, raw, None)
    return _check_thoroughly(value, loc, line, model, strict)


def plain_texts(values: Sequence[Any], model: Model, strict: bool) -> list[bytes] | None:
    """Returns the JSON texts of items as they will be stored where all are plain texts without a
    fault; None where `check` has to look at each. strict: as for `check`."""
    if model.effective_task == "tensors":
        return None
    if strict and not (model.spec.text_only or takes_any_text(model)):
        return None
    raws = storable_texts(values)
    if raws is None or max(map(len, raws)) > model.limits.max_item_bytes:
        return None
    return raws


def _check_thoroughly(
    value: Any, loc: tuple[str | int, ...], line: int | None, model: Model, strict: bool
) -> Item | list[Fault]:
    faults: list[Fault] = []

    def fault(key: str, code: str, message: str) -> None:
        faults.append(Fault((*loc, key) if wrapped else loc, code, message, line))

    wrapped = isinstance(value, dict)
    fields: dict[str, Any] = value if wrapped else {"input": value}
    converses = model.spec.generates or model.effective_task == "chat"
    example = _CHAT_ITEM if converses else '{"input": …}'
    is_bare = converses and "input" not in fields and not _BARE.isdisjoint(fields)
    for key in () if is_bare else sorted(fields.keys() - _KEYS):
        fault(key, "unknown_key", f"{key[:64]!r} is unknown; an item has custom_id, input, params")

    custom_id = fields.get("custom_id")
    if custom_id is not None and not is_custom_id(custom_id):
        fault("custom_id", "custom_id", CUSTOM_ID)

    raw, most = b"", model.limits.max_item_bytes
    if "input" not in fields:
        lacks = "the conversation must stand in an input" if is_bare else "an item needs an input"
        fault("input", "missing", f"{lacks}: {example}")
    else:
        try:
            raw = storable(fields["input"])
        except ValueError as refused:
            code, message = refused.args
            fault("input", code, f"the input {message}")
        if len(raw) > most:  # nothing walks it
            fault("input", "too_long", f"the input has {len(raw)} bytes; {model.key} takes {most}")
        elif raw and strict and (no := _refuse_thoroughly(model, fields["input"])):
            code, message = no
            wants_object = converses and not isinstance(fields["input"], dict)
            fault("input", code, f"{message}; an item is {example}" if wants_object else message)

    raw_params = None
    if (params := fields.get("params")) is not None:
        try:
            raw_params = _storable_params(model, params)
        except ValueError as refused:
            fault("params", *refused.args)
    inputs = model.split_inputs(fields.get("input"))
    if not faults and (message := too_long(model, raw, raw_params)):
        fault("params", "too_long", message)
    return faults or Item(custom_id, raw, raw_params, len(inputs) if inputs else 1)


def _storable_params(model: Model, params: Any) -> bytes:
    """Returns the JSON text of parameters. Raises ValueError(code, message)."""
    if not isinstance(params, dict):
        raise ValueError("type", "params must be an object")
    if no := refuse_params(model, params):
        raise ValueError(*no)
    try:
        return storable(params)
    except ValueError as refused:
        code, message = refused.args
        raise ValueError(code, f"the object params {message}") from None


def id_of(item: Any) -> str | None:
    """Returns the custom_id of an item with other faults, if it has a valid one."""
    custom_id = item.get("custom_id") if isinstance(item, dict) else None
    return custom_id if is_custom_id(custom_id) else None


def is_custom_id(value: Any) -> bool:
    """Returns True for a text that CUSTOM_ID describes."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_CUSTOM_ID:
        return False
    return _CONTROL.search(value) is None


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
