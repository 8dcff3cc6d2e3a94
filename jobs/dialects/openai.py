"""OpenAI's batches: a line is a request to one of its endpoints, a result line the response.

https://platform.openai.com/docs/api-reference/batch/request-input

`batch` has: endpoint; prefix, of the ids of requests; created, in seconds since 1970; and model,
once that is known.
"""

import base64
import struct
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import orjson

from jobs.dialects.protocol import BatchRequest, Lines, OpenIntake, Part, Row
from jobs.errors import Fault, Invalid, Malformed, UnknownModel
from jobs.intake import validation
from jobs.intake.spool import MAX_FAULTS, Intake
from jobs.intake.validation import Item
from jobs.models.engines.engine_spec import Task
from jobs.models.inputs.fields import FieldError
from jobs.models.inputs.generation import parse_all
from jobs.models.model import Model

ENDPOINTS: Mapping[str, Task] = {
    "/v1/embeddings": "embedding",
    "/v1/chat/completions": "chat",
    "/v1/completions": "chat",
}
"""Task of the models that each endpoint serves; completions are for those that generate."""

_MOST_WORDS = 500  # characters of a message about a line
_REQUEST = itemgetter("custom_id", "method", "url", "body")
_BASE64 = b'"base64"'
_ANSWERED = frozenset({"model", "input", "dimensions", "encoding_format", "user"})
"""Fields of the embeddings endpoint; all others are parameters of the model."""
_STATUSES = {"invalid_input": 400, "rate_limited": 429, "transient": 503}
"""HTTP status of failed items, by code; others: 500."""
_CODES = {
    "type": "invalid_type",
    "range": "invalid_value",
    "empty": "invalid_value",
    "too_many": "invalid_value",
    "unknown_param": "unknown_parameter",
    "chat": "invalid_value",
}
"""OpenAI's code for each code of an item's fault."""
_NOT_RUN = {
    "cancelled": "This request was not executed: the batch was cancelled.",
    "expired": "This request could not be executed before the completion window expired.",
}


_NO_VECTOR = {"code": "invalid_output", "message": "what the model gave out is no vector"}


class OpenAI:
    """A line: {"custom_id", "method", "url", "body"}; all of one url and one model. An answer:
    {"id", "custom_id", "response", "error"}; those that failed go into a file of their own."""

    def read_items(self, open_intake: OpenIntake, lines: Lines, batch: BatchRequest) -> Intake:
        """Reads the lines of an input."""
        requests = _Requests(open_intake, batch["endpoint"])
        for line in lines:
            requests.take(line)
        return requests.finish()

    def result_line(self, row: Row, unit: str, batch: BatchRequest) -> tuple[Part, bytes]:
        """Returns a result line."""
        id = f"{batch['prefix']}{row['seq']}"
        line = {"id": f"batch_req_{id}", "custom_id": row["custom_id"], "response": None}
        outcome = row["outcome"]
        if message := _NOT_RUN.get(outcome):
            code = f"batch_{outcome}"
            return "errors", orjson.dumps(line | {"error": {"code": code, "message": message}})
        if outcome == "failed":
            status, body = _failure(orjson.loads(row["error"]))
        else:
            tokens = row["units"] if unit == "tokens" else 0
            try:
                status, body = 200, _body(row, id, batch, tokens)
            except (KeyError, TypeError, ValueError, OverflowError, struct.error):
                status, body = _failure(_NO_VECTOR)
        response = {"status_code": status, "request_id": f"req_{id}", "body": body}
        part: Part = "results" if status == 200 else "errors"
        return part, orjson.dumps(line | {"response": response, "error": None})


class _LineError(Exception):
    """A line is wrong. args: code, message, path into it."""


class _Requests:
    """Reader of the lines of one input; reports the first fault of each."""

    def __init__(self, open_intake: OpenIntake, endpoint: str) -> None:
        self._open, self._endpoint = open_intake, endpoint
        self._input = _READERS[endpoint]
        self._line = 0
        self._intake: Intake | None = None  # once a line names a model
        self._model = ""
        self._faults: list[Fault] = []  # of the lines before that

    def take(self, line: bytes | None) -> None:
        """Adds one line; None: it is too long."""
        self._line += 1
        try:
            custom_id, body = _request(line, self._endpoint)
            intake = self._taking(body)
            input, params, reply, inputs = self._input(intake.model, body)
            if no := validation.too_long(intake.model, input, params):
                raise _LineError("too_long", no, "body")
        except _LineError as error:
            self._fault(*error.args)
        else:
            intake.take(Item(custom_id, input, params, inputs), reply)

    def finish(self) -> Intake:
        """Returns the finished intake. Raises Invalid with all faults."""
        if self._line == 0:
            self._faults.append(Fault((), "empty_file", "the input file is empty"))
        if self._intake is None:
            raise _nothing_stored(self._faults)
        self._intake.finish(lambda seq: ((), seq + 1))
        return self._intake

    def _taking(self, body: Mapping[str, Any]) -> Intake:
        """Returns the intake of the model that this line names, as all must."""
        model = body.get("model")
        if self._intake is None:
            if model is None:
                raise _missing("body.model")
            if not isinstance(model, str):
                raise _LineError("invalid_type", "the model must be a string", "body.model")
            self._intake, self._model = self._opened(model), model
        elif model != self._model:
            if model is None:
                raise _missing("body.model")
            message = f"all lines of a batch name one model: {self._model!r} is the first one's"
            raise _LineError("mismatched_model", message, "body.model")
        return self._intake

    def _opened(self, model: str) -> Intake:
        """Opens the intake. Raises Invalid where the endpoint doesn't serve the model."""
        try:
            intake = self._open(model)
        except UnknownModel as unknown:
            raise self._refused("model_not_found", unknown.detail) from unknown
        wanted, does = ENDPOINTS[self._endpoint], intake.model.effective_task
        generates = intake.model.spec.generates or self._endpoint != "/v1/completions"
        if does != wanted or not generates:
            intake.close()
            message = f"{model} does {does!r}; {self._endpoint} is for models that do {wanted!r}"
            if not generates:
                message = f"{model} takes conversations only: send them to /v1/chat/completions"
            raise self._refused("model_not_supported", message)
        intake.total = self._line - 1
        intake.fault(*self._faults)
        return intake

    def _refused(self, code: str, message: str) -> Invalid:
        return _nothing_stored([*self._faults, self._named(code, message, "body.model")])

    def _named(self, code: str, message: str, path: str) -> Fault:
        """Returns a fault of the line, with its quotes of the line cut."""
        names = tuple(filter(None, path[:_MOST_WORDS].split(".")))
        return Fault(names, code, message[:_MOST_WORDS], self._line)

    def _fault(self, code: str, message: str, path: str) -> None:
        fault = self._named(code, message, path)
        if self._intake is not None:
            self._intake.refuse(fault)
        elif len(self._faults) < MAX_FAULTS:
            self._faults.append(fault)
        else:
            raise _nothing_stored(self._faults, at_least="at least ")


def _nothing_stored(faults: list[Fault], at_least: str = "") -> Invalid:
    plural = "fault" if len(faults) == 1 else "faults"
    return Invalid(f"{at_least}{len(faults)} {plural}, nothing was stored", faults=faults)


def _missing(path: str) -> _LineError:
    return _LineError("missing_required_parameter", f"Missing required parameter: '{path}'.", path)


def _request(line: bytes | None, endpoint: str) -> tuple[str, dict[str, Any]]:
    """Returns a line's custom_id and body. Raises _LineError."""
    if line is None:
        raise _LineError("too_long", "the line is longer than any request may be", "")
    try:
        request = validation.parse_json(line)
    except Malformed as error:
        what = error.detail if line.strip() else "the line is empty"
        message = f"This line is not parseable as valid JSON: {what}"
        raise _LineError("invalid_json_line", message, "") from None
    if not isinstance(request, dict):
        raise _LineError("invalid_json_line", "a line is a JSON object", "")
    try:
        custom_id, method, url, body = _REQUEST(request)
    except KeyError as error:
        raise _missing(error.args[0]) from None
    if not validation.is_custom_id(custom_id):
        raise _LineError("invalid_custom_id", validation.CUSTOM_ID, "custom_id")
    if method != "POST":
        raise _LineError(
            "invalid_method", f"the method must be 'POST', not {_shown(method)}", "method"
        )
    if url != endpoint:
        message = f"the url must be the endpoint of the batch, {endpoint!r}, not {_shown(url)}"
        raise _LineError("invalid_url", message, "url")
    if not isinstance(body, dict):
        raise _LineError("invalid_type", "the body must be an object", "body")
    if body.get("stream"):
        message = "answers in a batch are not streamed: leave `stream` out"
        raise _LineError("unsupported_parameter", message, "body.stream")
    return custom_id, body


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else type(value).__name__


_Read = tuple[bytes, bytes | None, bytes | None, int]
"""Input, params and reply as JSON, and the number of inputs."""


def _embedding(model: Model, body: Mapping[str, Any]) -> _Read:
    """Reads a request for embeddings. Raises _LineError."""
    try:
        input = body["input"]
    except KeyError:
        raise _missing("body.input") from None
    if no := validation.refuse_input(model, input):
        raise _LineError(*_typed(no), "body.input")
    raw, params, reply = _json(input, "body.input"), None, None
    if len(body) > 2:  # more than model and input
        if wanted := _params(model, body):
            params = _json(wanted, "body")
        if body.get("encoding_format") == "base64":
            reply = _BASE64
    inside = model.split_inputs(input)
    return raw, params, reply, len(inside) if inside else 1


def _params(model: Model, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the model's own parameters in a request for embeddings."""
    if body.get("encoding_format") not in (None, "float", "base64"):
        message = "the encoding_format is 'float' or 'base64'"
        raise _LineError("invalid_value", message, "body.encoding_format")
    wanted = {name: body[name] for name in body if name not in _ANSWERED and name != "stream"}
    if body.get("dimensions") is not None:
        wanted["dimensions"] = body["dimensions"]
    for name in wanted:
        if no := validation.refuse_params(model, {name: wanted[name]}):
            raise _LineError(*_typed(no), f"body.{name}")
    return wanted


def _chat(model: Model, body: Mapping[str, Any]) -> _Read:
    """Reads a conversation, whose input is the body. Raises _LineError."""
    messages = body.get("messages")
    if messages is None:
        raise _missing("body.messages")
    if not isinstance(messages, list) or not messages:
        raise _LineError(
            "invalid_type", "messages must be an array, not an empty one", "body.messages"
        )
    return _generation(model, body)


def _completion(model: Model, body: Mapping[str, Any]) -> _Read:
    """Reads a prompt, whose input is the body. Raises _LineError."""
    if body.get("prompt") is None:
        raise _missing("body.prompt")
    return _generation(model, body)


def _generation(model: Model, body: Mapping[str, Any]) -> _Read:
    input = {name: body[name] for name in body if name not in ("model", "stream")}
    if model.spec.generates:
        try:
            parse_all(input)
        except FieldError as error:
            raise _LineError("invalid_value", str(error), f"body.{error.field}") from None
    elif no := validation.refuse_input(model, input):
        raise _LineError(*_typed(no), "body")
    return _json(input, "body"), None, None, 1


_READERS: Mapping[str, Callable[[Model, Mapping[str, Any]], _Read]] = {
    "/v1/embeddings": _embedding,
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
}


def _json(value: Any, path: str) -> bytes:
    try:
        return validation.storable(value)
    except ValueError as error:
        code, message = error.args
        raise _LineError(code, f"{path} {message}", path) from None


def _typed(refused: tuple[str, str]) -> tuple[str, str]:
    """Returns OpenAI's code and our message."""
    code, message = refused
    return _CODES.get(code, code), message


def _failure(error: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Returns status and body of the response to a failed request."""
    status = _STATUSES.get(error["code"], 500)
    type = "invalid_request_error" if status == 400 else "server_error"
    said = {"message": error["message"], "type": type, "param": None, "code": error["code"]}
    return status, {"error": said}


def _body(row: Row, id: str, batch: BatchRequest, tokens: int) -> dict[str, Any]:
    """Returns the response of the endpoint. tokens: 0 where the model counts none."""
    if batch["endpoint"] == "/v1/embeddings":
        as_base64 = row["reply"] == _BASE64.decode()
        return embeddings(_raw(row["output"]), batch["model"], tokens, as_base64=as_base64)
    output = orjson.loads(row["output"])
    if isinstance(output, dict) and "choices" in output:
        return {"object": "chat.completion", "model": batch["model"]} | output
    text = output if isinstance(output, str) else _raw(row["output"]).decode()
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": f"chatcmpl-{id}",
        "object": "chat.completion",
        "created": batch["created"],
        "model": batch["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
    }


def _raw(output: str | bytes) -> bytes:
    """Returns an output as bytes, as those from the blob store are."""
    return output.encode() if isinstance(output, str) else output


def embeddings(output: bytes, model: str, tokens: int, *, as_base64: bool) -> dict[str, Any]:
    """Returns the response to a request for embeddings. output: JSON, one vector or a list."""
    vectors: list[Any]
    if as_base64:
        decoded = orjson.loads(output)
        if not isinstance(decoded, list):
            raise TypeError("no vector")
        many = bool(decoded) and isinstance(decoded[0], list)
        vectors = [_base64(vector) for vector in (decoded if many else [decoded])]
    elif output.startswith(b"[["):
        vectors = orjson.loads(output)
    else:
        vectors = [orjson.Fragment(output)]
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _base64(vector: list[float]) -> str:
    """Encodes a vector as 32-bit floats, little-endian, as OpenAI's clients expect."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
