"""Calls from the page that tries a model: its form as a body of POST /infer."""

import base64
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Literal

from api.http.multipart import Form
from jobs.errors import Fault, Invalid, MillraceError
from jobs.intake import validation
from jobs.models.inputs import tensor_inputs
from jobs.models.model import Model

Kind = Literal["text", "chat", "tensors", "image", "json"]

TIMEOUT_MS = 60_000
_TEXTS = {"any", "text", "embedding", "classification", "tokens"}  # tasks that take a text


def kinds_of(model: Model) -> tuple[Kind, ...]:
    """Returns the forms that an input of a model may be written in, the usual one first."""
    task = model.effective_task
    if model.spec.generates or task == "chat":
        return "chat", "json"
    if task == "tensors":
        return "tensors", "json"
    if task == "image_classification":
        return "image", "json"
    return ("text", "json") if task in _TEXTS else ("json",)


def body_of(model: Model, name: str, form: Form) -> dict[str, Any]:
    """Returns the body of the call. name: of the model, as it is to be called. Raises Invalid with
    what is wrong in the form."""
    kinds = kinds_of(model)
    chosen = form.fields.get("kind")
    kind = next((kind for kind in kinds if kind == chosen), kinds[0])
    body: dict[str, Any] = {"model": name, "input": _READERS[kind](model, form)}
    if params := form.fields.get("params", "").strip():
        body["params"] = _json("params", params)
    if form.fields.get("stream"):
        body["stream"] = True
    return body


def _text(model: Model, form: Form) -> str:
    return form.fields.get("text", "").replace("\r\n", "\n")


def _json_input(model: Model, form: Form) -> Any:
    return _json("json", form.fields.get("json", ""))


def _chat(model: Model, form: Form) -> dict[str, Any]:
    fields = form.fields
    history = messages_of(fields)
    system, message = fields.get("system", "").strip(), fields.get("message", "").strip()
    first = [{"role": "system", "content": system}] if system else []
    if not message:
        raise _fault("message", "write a message")
    value: dict[str, Any] = {"messages": [*first, *history, {"role": "user", "content": message}]}
    for name in ("temperature", "max_tokens"):
        if typed := fields.get(name, "").strip():
            value[name] = _number(name, typed)
    return value


def messages_of(fields: Mapping[str, str]) -> list[Any]:
    """Returns the messages so far. Raises Invalid."""
    history = _json("history", fields.get("history") or "[]")
    if not isinstance(history, list):
        raise _fault("history", "the messages so far are no list; reload the page")
    return history


def text_of(output: Any) -> str:
    """Returns the text of an output that a model generated; "": it has none."""
    try:
        choice = output["choices"][0]
        return str(choice.get("text") or choice["message"]["content"] or "")
    except (LookupError, TypeError, AttributeError):
        return output if isinstance(output, str) else ""


def _tensors(model: Model, form: Form) -> dict[str, Any]:
    inputs = {}
    for n, spec in enumerate(tensor_inputs.signature(model).inputs.values()):
        shape = [part.strip() for part in form.fields.get(f"shape-{n}", "").split(",")]
        sizes = [int(part) for part in shape if part.isdecimal() and len(part) < 11]
        if len(sizes) != len(shape):
            raise _fault(spec.name, "its shape is whole numbers with commas between them")
        data = _json(spec.name, form.fields.get(f"data-{n}", ""))
        inputs[spec.name] = {"datatype": spec.datatype, "shape": sizes, "data": data}
    return {"inputs": inputs}


def _image(model: Model, form: Form) -> str:
    raw = form.file.read()
    if not raw:
        raise _fault("file", "choose a JPEG or PNG")
    return base64.b64encode(raw).decode()


_READERS: Mapping[Kind, Callable[[Model, Form], Any]] = {
    "text": _text,
    "chat": _chat,
    "tensors": _tensors,
    "image": _image,
    "json": _json_input,
}


def _number(name: str, typed: str) -> float:
    try:
        number = float(typed)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise _fault(name, f"{typed[:50]!r} is no number")
    return int(number) if number.is_integer() else number


def _json(name: str, text: str) -> Any:
    try:
        return validation.parse_json(text.encode())
    except MillraceError as error:
        raise _fault(name, error.detail) from None


def _fault(name: str, message: str) -> Invalid:
    return Invalid(f"{name}: {message}", faults=[Fault((name,), "invalid", message)])
