"""OpenAI's batches: a line is a request to one of its endpoints, a result line the response.

https://platform.openai.com/docs/api-reference/batch/request-input

`batch` has: endpoint; prefix, of the ids of requests; created, in seconds since 1970; and model,
once that is known.
"""

import base64
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from jobs.dialects.openai_lines import (
    BASE64,
    ENDPOINTS,
    READERS,
    LineError,
    body_of,
    custom_id_of,
    missing,
    request_of,
)
from jobs.dialects.protocol import BatchRequest, Lines, OpenIntake, Part, Row
from jobs.dialects.responses import lines as responses
from jobs.errors import Fault, Invalid, MillraceError, UnknownModel, without_surrogates
from jobs.intake import validation
from jobs.intake.lines import Line, without_last_blanks
from jobs.intake.spool import MAX_FAULTS, Intake
from jobs.intake.validation import Item
from jobs.models.engines.engine_spec import Task

_MOST_WORDS = 500  # characters of a message about a line
_MOST_BEFORE = 20_000  # faulty lines before the first that names a model, kept in memory
_LINE_ERROR = "line_error"  # of the reply of a line that was stored with its fault
_STATUSES = {"invalid_input": 400, "rate_limited": 429, "transient": 503}
"""HTTP status of failed items, by code; others: 500."""
_NOT_RUN = {
    "cancelled": "This request was not executed: the batch was cancelled.",
    "expired": "This request could not be executed before the completion window expired.",
}


TOO_LONG = "context_length_exceeded"
"""OpenAI's code for an input that its model has no room for."""
_CONTEXT_LENGTH = "maximum context length"  # words of our engines, vLLM and OpenAI

_MOST_FLOAT32 = 3.4028235e38
_NO_VECTOR = {"code": "invalid_output", "message": "what the model gave out is no vector"}
_NO_ANSWER = {"code": "invalid_output", "message": "what the model gave out is no answer of a chat"}


class OpenAI:
    """A line: {"custom_id", "method", "url", "body"}; all of one url and one model. An answer:
    {"id", "custom_id", "response", "error"}; those that failed go into a file of their own."""

    def read_items(self, open_intake: OpenIntake, lines: Lines, batch: BatchRequest) -> Intake:
        """Reads the lines of an input."""
        fails_invalid = batch.get("on_invalid") == "fail_item"
        requests = _Requests(open_intake, batch["endpoint"], fails_invalid)
        for line in without_last_blanks(lines):
            requests.take(line)
        return requests.finish()

    def result_line(self, row: Row, unit: str, batch: BatchRequest) -> tuple[Part, bytes]:
        """Returns a result line."""
        id = f"{batch['prefix']}{row['seq']}"
        line = {"id": f"batch_req_{id}", "custom_id": row["custom_id"], "response": None}
        outcome = row["outcome"]
        if outcome == "failed" and (error := _line_error(row["reply"])):
            return "errors", orjson.dumps(line | {"error": error})
        if message := _NOT_RUN.get(outcome):
            code = f"batch_{outcome}"
            return "errors", orjson.dumps(line | {"error": {"code": code, "message": message}})
        if outcome == "failed":
            status, body = _failure(orjson.loads(row["error"]))
        else:
            tokens = row["units"] if unit == "tokens" else 0
            if row["version"]:
                batch = {**batch, "model": f"{batch['model']}@{row['version']}"}
            try:
                status, body = 200, _body(row, id, batch, tokens)
            except (
                MillraceError, KeyError, TypeError, ValueError, OverflowError, struct.error
            ):  # fmt: skip
                is_chat = ENDPOINTS[batch["endpoint"]] == "chat"
                status, body = _failure(_NO_ANSWER if is_chat else _NO_VECTOR)
        response = {"status_code": status, "request_id": f"req_{id}", "body": body}
        part: Part = "results" if status == 200 else "errors"
        return part, orjson.dumps(line | {"response": response, "error": None})

    def output_problem(self, output: Any, task: Task) -> str | None:
        """Returns why an output holds no vectors, where they are wanted; of a conversation, why no
        response can be made of it."""
        if task == "chat":
            return responses.output_problem(output)
        holds_them = task != "embedding" or _is_vector(output) or _are_vectors(output)
        return None if holds_them else str(_NO_VECTOR["message"])


class _Requests:
    """Reader of the lines of one input; reports the first fault of each.

    fails_invalid: lines with a fault are items that fail; otherwise nothing is stored with any.
    """

    def __init__(self, open_intake: OpenIntake, endpoint: str, fails_invalid: bool) -> None:
        self._open, self._endpoint, self._fails_invalid = open_intake, endpoint, fails_invalid
        self._input = READERS[endpoint]
        self._line = 0
        self._intake: Intake | None = None  # once a line names a model that can be used
        self._model = ""  # of the first line that names one
        self._no_model: LineError | None = None  # why that one can't be used
        self._before: list[tuple[Fault, str | None]] = []  # faulty lines until then, their ids

    def take(self, line: Line) -> None:
        """Adds one line."""
        self._line += 1
        if isinstance(line, Fault):
            self._fault(replace(line, line=self._line), None)
            return
        custom_id = None
        try:
            request = request_of(line)
            custom_id = custom_id_of(request)
            body = body_of(request, self._endpoint)
            intake = self._taking(body)
            input, params, reply, inputs = self._input(intake.model, body)
            if no := validation.too_long(intake.model, input, params):
                raise LineError("too_long", no, "body")
        except LineError as error:
            self._fault(self._named(*error.args), custom_id)
        else:
            intake.take(Item(custom_id, input, params, inputs), reply)

    def finish(self) -> Intake:
        """Returns the finished intake. Raises Invalid with all faults."""
        if self._line == 0:
            self._before.append((Fault((), "empty_file", "the input file is empty"), None))
        if self._intake is None:
            raise _nothing_stored([fault for fault, _ in self._before])
        self._intake.finish(lambda seq: ((), seq + 1), _reply_to)
        return self._intake

    def _taking(self, body: Mapping[str, Any]) -> Intake:
        """Returns the intake of the model that this line names, as all must."""
        model = body.get("model")
        if model is None:
            raise missing("body.model")
        if self._model and model != self._model:
            message = f"all lines of a batch name one model: {self._model!r} is the first one's"
            raise LineError("mismatched_model", message, "body.model")
        if not isinstance(model, str):
            raise LineError("invalid_type", "the model must be a string", "body.model")
        if self._no_model:
            raise LineError(*self._no_model.args)
        if self._intake is None:
            self._model = model
            try:
                self._intake = self._opened(model)
            except LineError as error:
                if self._fails_invalid:
                    self._model = ""  # a later line may name one that can be used
                else:
                    self._no_model = error
                raise
        return self._intake

    def _opened(self, model: str) -> Intake:
        """Opens the intake, with the lines before. Raises LineError where the endpoint doesn't
        serve the model."""
        try:
            intake = self._open(model)
        except UnknownModel as unknown:
            raise LineError("model_not_found", unknown.detail, "body.model") from unknown
        wanted, does = ENDPOINTS[self._endpoint], intake.model.effective_task
        generates = intake.model.spec.generates or self._endpoint != "/v1/completions"
        if does != wanted or not generates:
            intake.close()
            message = f"{model} does {does!r}; {self._endpoint} is for models that do {wanted!r}"
            if not generates:
                message = f"{model} takes conversations only: send them to /v1/chat/completions"
            raise LineError("model_not_supported", message, "body.model")
        for fault, custom_id in self._before:
            intake.refuse(fault, custom_id=custom_id, reply=_reply_to(fault))
        return intake

    def _named(self, code: str, message: str, path: str) -> Fault:
        """Returns a fault of the line, with its quotes of the line cut."""
        names = without_surrogates(path[:_MOST_WORDS]).split(".")
        message = without_surrogates(message[:_MOST_WORDS])
        return Fault(tuple(filter(None, names)), code, message, self._line)

    def _fault(self, fault: Fault, custom_id: str | None) -> None:
        if self._intake is not None:
            self._intake.refuse(fault, custom_id=custom_id, reply=_reply_to(fault))
        elif len(self._before) < (_MOST_BEFORE if self._fails_invalid else MAX_FAULTS):
            self._before.append((fault, custom_id))
        else:
            raise _nothing_stored([fault for fault, _ in self._before], at_least="at least ")


def _reply_to(fault: Fault) -> bytes:
    """Returns the reply of a line that is stored with its fault."""
    line = {"code": fault.code, "message": fault.message, "line": fault.line}
    error = {**line, "param": ".".join(map(str, fault.loc)) or None}
    return orjson.dumps({_LINE_ERROR: error})


def _nothing_stored(faults: list[Fault], at_least: str = "") -> Invalid:
    plural = "fault" if len(faults) == 1 else "faults"
    return Invalid(
        f"{at_least}{len(faults)} {plural}, nothing was stored", faults=faults[:MAX_FAULTS]
    )


def _line_error(reply: str | None) -> Any:
    """Returns the error of a line that was stored with its fault; None for any other."""
    if reply is None or _LINE_ERROR not in reply:
        return None
    return orjson.loads(reply).get(_LINE_ERROR)


def is_too_long(code: str, message: str) -> bool:
    """Returns True for the error of an input that its model has no room for: clients go to one with
    more. code: ours."""
    return code == "too_long" or _CONTEXT_LENGTH in message


def _failure(error: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Returns status and body of the response to a failed request."""
    status = _STATUSES.get(error["code"], 500)
    type = "invalid_request_error" if status == 400 else "server_error"
    code = error["code"]
    if status == 400 and is_too_long(code, error["message"]):
        code = TOO_LONG
    said = {"message": error["message"], "type": type, "param": None, "code": code}
    return status, {"error": said}


def _body(row: Row, id: str, batch: BatchRequest, tokens: int) -> dict[str, Any]:
    """Returns the response of the endpoint. tokens: 0 where the model counts none."""
    if batch["endpoint"] == "/v1/embeddings":
        as_base64 = row["reply"] == BASE64.decode()
        vectors = embeddings(_raw(row["output"]), batch["model"], tokens, as_base64=as_base64)
        vectors["usage"] |= _cut(row)
        return vectors
    if batch["endpoint"] == "/v1/responses":
        reply = orjson.loads(row["reply"] or "{}")
        return responses.response_of(_raw(row["output"]), reply, batch, row["seq"], tokens)
    output = orjson.loads(row["output"])
    counted = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    usage = counted | _cut(row)
    if isinstance(output, dict) and "choices" in output:
        completion = {"object": "chat.completion", "model": batch["model"]} | output
        if tokens and not completion.get("usage"):
            completion["usage"] = usage
        return completion
    text = output if isinstance(output, str) else _raw(row["output"]).decode()
    message = {"role": "assistant", "content": text, "refusal": None}
    return {
        "id": f"chatcmpl-{id}",
        "object": "chat.completion",
        "created": batch["created"],
        "model": batch["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": usage,
    }


def _cut(row: Row) -> dict[str, int]:
    """Returns what `usage` gains where the item's text was cut."""
    return {"truncated": row["truncated"]} if row["truncated"] else {}


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


def _is_vector(output: Any) -> bool:
    """Returns True for numbers that float32 holds; what isn't finite has a message of its own."""
    if isinstance(output, list | tuple):
        numbers = set(map(type, output)) <= {int, float}
        return numbers and not max(map(abs, output), default=0) > _MOST_FLOAT32
    return getattr(output, "ndim", None) == 1 and not _is_too_large(output)


def _are_vectors(output: Any) -> bool:
    if isinstance(output, list | tuple):
        return all(map(_is_vector, output))
    return getattr(output, "ndim", None) == 2 and not _is_too_large(output)


def _is_too_large(array: Any) -> bool:
    if array.dtype.kind in "biu" or array.dtype.itemsize <= 4:
        return False
    return bool((abs(array) > _MOST_FLOAT32).any())


def _base64(vector: list[float]) -> str:
    """Encodes a vector as 32-bit floats, little-endian, as OpenAI's clients expect."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
