"""Lines of OpenAI's batches: the request in a line, and the bodies of each endpoint.

https://platform.openai.com/docs/api-reference/batch/request-input
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from jobs.dialects.responses import lines as responses
from jobs.dialects.responses.requests import renamed_field
from jobs.errors import Invalid, Malformed
from jobs.intake import validation
from jobs.models.engines.engine_spec import Task
from jobs.models.inputs import embeddings
from jobs.models.inputs.conversation import has_several
from jobs.models.inputs.fields import FieldError
from jobs.models.inputs.generation import parse_all
from jobs.models.inputs.request_fields.table import check, names
from jobs.models.model import Model

ENDPOINTS: Mapping[str, Task] = {
    "/v1/embeddings": "embedding",
    "/v1/chat/completions": "chat",
    "/v1/completions": "chat",
    "/v1/responses": "chat",
}
"""Task of the models that each endpoint serves; completions are for those that generate."""

_REQUEST = itemgetter("method", "url", "body")
BASE64 = b'"base64"'
"""Reply of a line whose vectors are to be encoded."""
_ANSWERED = {"input", "encoding_format", "model", "stream"} | names("embeddings", "label")
"""Fields of the embeddings endpoint; all others are parameters of the model, or refused."""
_REFUSED = names("embeddings", "refused")
_NULLABLE = {"dimensions", "normalize", "truncate_prompt_tokens", "use_activation"}
_CODES = {
    "type": "invalid_type",
    "range": "invalid_value",
    "empty": "invalid_value",
    "too_many": "invalid_value",
    "unknown_param": "unknown_parameter",
    "chat": "invalid_value",
}
"""OpenAI's code for each code of an item's fault."""


class LineError(Exception):
    """A line is wrong. args: code, message, path into it."""


def missing(path: str) -> LineError:
    """Returns the error of a parameter that is not there."""
    return LineError("missing_required_parameter", f"Missing required parameter: '{path}'.", path)


def request_of(line: bytes | None) -> dict[str, Any]:
    """Returns the object of a line. Raises LineError."""
    if line is None:
        raise LineError("too_long", "the line is longer than any request may be", "")
    try:
        request = validation.parse_json(line)
    except Malformed as error:
        what = error.detail if line.strip() else "the line is empty"
        message = f"This line is not parseable as valid JSON: {what}"
        raise LineError("invalid_json_line", message, "") from None
    except Invalid as error:
        first = error.faults[0]
        path = ".".join(map(str, first.loc))
        raise LineError(first.code, first.message, path) from None
    if not isinstance(request, dict):
        raise LineError("invalid_json_line", "a line is a JSON object", "")
    return request


def custom_id_of(request: Mapping[str, Any]) -> str:
    """Returns the custom_id of a line. Raises LineError."""
    if "custom_id" not in request:
        raise missing("custom_id")
    custom_id = request["custom_id"]
    if not validation.is_custom_id(custom_id):
        raise LineError("invalid_custom_id", validation.CUSTOM_ID, "custom_id")
    return str(custom_id)


def body_of(request: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    """Returns the body of a line. Raises LineError."""
    try:
        method, url, body = _REQUEST(request)
    except KeyError as error:
        raise missing(error.args[0]) from None
    if method != "POST":
        raise LineError(
            "invalid_method", f"the method must be 'POST', not {_shown(method)}", "method"
        )
    if url != endpoint:
        message = f"the url must be the endpoint of the batch, {endpoint!r}, not {_shown(url)}"
        raise LineError("invalid_url", message, "url")
    if not isinstance(body, dict):
        raise LineError("invalid_type", "the body must be an object", "body")
    if body.get("stream"):
        message = "answers in a batch are not streamed: leave `stream` out"
        raise LineError("unsupported_parameter", message, "body.stream")
    return body


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else type(value).__name__


_Read = tuple[bytes, bytes | None, bytes | None, int]
"""Input, params and reply as JSON, and the number of inputs."""


def _embedding(model: Model, body: Mapping[str, Any]) -> _Read:
    """Reads a request for embeddings. Raises LineError."""
    try:
        input = body["input"]
    except KeyError:
        raise missing("body.input") from None
    no = validation.refuse_input(model, input) or embeddings.refuse_from_openai(
        input, accepts_token_ids=model.accept_token_ids
    )
    if no:
        raise LineError(*_typed(no), "body.input")
    raw, params, reply = _json(input, "body.input"), None, None
    if len(body) > 2:  # more than model and input
        if wanted := _params(model, body):
            params = _json(wanted, "body")
        if body.get("encoding_format") == "base64":
            reply = BASE64
    inside = model.split_inputs(input)
    return raw, params, reply, len(inside) if inside else 1


def _params(model: Model, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the model's own parameters in a request for embeddings."""
    if body.get("encoding_format") not in (None, "float", "base64"):
        message = "the encoding_format is 'float' or 'base64'"
        raise LineError("invalid_value", message, "body.encoding_format")
    if both := embeddings.contradiction(body):
        raise LineError("invalid_value", both[1], f"body.{both[0]}")
    wanted, fields = {}, dict[str, str]()
    for name, value in body.items():
        if name in _REFUSED:
            _check_embedding(name, value)
        elif name not in _ANSWERED and not (value is None and name in _NULLABLE):
            param, wanted[param] = embeddings.param_of(name, value, model.params)
            fields[param] = name
    for name in wanted:
        if no := validation.refuse_params(model, {name: wanted[name]}):
            raise LineError(*_typed(no), f"body.{fields.get(name, name)}")
    return wanted


def _check_embedding(name: str, value: Any) -> None:
    try:
        check("embeddings", {name: value})
    except FieldError as error:
        raise LineError("invalid_value", str(error), f"body.{name}") from None


def _chat(model: Model, body: Mapping[str, Any]) -> _Read:
    """Reads a conversation, whose input is the body. Raises LineError."""
    messages = body.get("messages")
    if messages is None:
        raise missing("body.messages")
    if not isinstance(messages, list) or not messages:
        raise LineError(
            "invalid_type", "messages must be an array, not an empty one", "body.messages"
        )
    if has_several(messages):
        raise LineError(
            "invalid_type",
            "messages[0] must be an object: send a line for each conversation",
            "body.messages[0]",
        )
    return _generation(model, body)


def _completion(model: Model, body: Mapping[str, Any]) -> _Read:
    """Reads a prompt, whose input is the body. Raises LineError."""
    if body.get("prompt") is None:
        raise missing("body.prompt")
    return _generation(model, body)


def _response(model: Model, body: Mapping[str, Any]) -> _Read:
    """Reads a request for a response, whose reply is what the response repeats of it. Raises
    LineError."""
    if body.get("input") is None:
        raise missing("body.input")
    if no := responses.unserved(body):
        field, why = no
        raise LineError("unsupported_parameter", why, f"body.{field}")
    try:
        request, shown = responses.read_line(body)
    except FieldError as error:
        raise LineError("invalid_value", str(error), f"body.{error.field}") from None
    try:
        input, *_ = _generation(model, request.input)
    except LineError as error:
        code, message, path = error.args
        if path == "body":
            raise _of_a_field(body, code, message) from None
        field, message = renamed_field(path.removeprefix("body."), message)
        raise LineError(code, message, f"body.{field}") from None
    try:
        return input, None, _json(shown, "body") if shown else None, 1
    except LineError as error:
        raise _of_a_field(body, *error.args[:2]) from None


def _of_a_field(body: Mapping[str, Any], code: str, message: str) -> LineError:
    """Returns the error of the first field that can't be stored; of the input where each can be
    alone."""
    for name, value in body.items():
        try:
            _json(value, f"body.{name}")
        except LineError as error:
            return error
    return LineError(code, message, "body.input")


def _generation(model: Model, body: Mapping[str, Any]) -> _Read:
    input = {name: body[name] for name in body if name not in ("model", "stream")}
    if model.spec.generates:
        try:
            parse_all(input)
        except FieldError as error:
            raise LineError("invalid_value", str(error), f"body.{error.field}") from None
    elif no := validation.refuse_input(model, input):
        raise LineError(*_typed(no), "body")
    return _json(input, "body"), None, None, 1


READERS: Mapping[str, Callable[[Model, Mapping[str, Any]], _Read]] = {
    "/v1/embeddings": _embedding,
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
    "/v1/responses": _response,
}


def _json(value: Any, path: str) -> bytes:
    try:
        return validation.storable(value)
    except ValueError as error:
        code, message = error.args
        raise LineError(code, f"{path} {message}", path) from None


def _typed(refused: tuple[str, str]) -> tuple[str, str]:
    """Returns OpenAI's code and our message."""
    code, message = refused
    return _CODES.get(code, code), message
