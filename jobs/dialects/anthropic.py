"""Anthropic's Message Batches: a line is a request, a result a message."""

from dataclasses import replace
from functools import partial
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import orjson

from jobs import ids
from jobs.dialects.messages import (
    PLACEHOLDER,
    ReportFault,
    in_anthropics_words,
    input_of,
    message_of,
)
from jobs.dialects.protocol import BatchRequest, Lines, OpenIntake, Part, Row
from jobs.errors import Fault, Invalid, Malformed
from jobs.intake import validation
from jobs.intake.lines import Line, without_last_blanks
from jobs.intake.spool import Intake
from jobs.models.engines.engine_spec import Task

Loc = tuple[str | int, ...]


class Anthropic:
    """A line is `{"custom_id", "params"}`, params the body of a Messages request."""

    def read_items(self, open_intake: OpenIntake, lines: Lines, batch: BatchRequest) -> Intake:
        """Reads the lines of an input."""
        taken: Intake | None = None
        model = ""
        for number, line in enumerate(without_last_blanks(lines), start=1):
            request, faults = _parsed(line, number)
            if taken is None:
                model = model_of(request)
                taken = open_intake(model)
            if faults:
                taken.refuse(*faults)
            else:
                value, faults = item_of(request, (), number)
                taken.add(value, (), number)
                taken.fault(*faults)
                if model_of(request) != model:
                    message = f"all lines name one model; the first named {model!r}"
                    taken.fault(Fault(("params", "model"), "mismatched_model", message, number))
        taken = taken or open_intake("")
        taken.finish(lambda seq: ((), seq + 1))
        return taken

    def result_line(self, row: Row, unit: str, batch: BatchRequest) -> tuple[Part, bytes]:
        """Returns a result line. batch: `model`, as the requests named it."""
        result = {"custom_id": row["custom_id"], "result": _result(row, batch)}
        return "results", orjson.dumps(result)

    def output_problem(self, output: Any, task: Task) -> str | None:
        """Returns why an output is no message."""
        try:
            message_of(output, "", None)
        except ValueError as error:
            return str(error)
        return None


def _parsed(line: Line, number: int) -> tuple[Any, list[Fault]]:
    if isinstance(line, Fault):
        return None, [replace(line, line=number)]
    if line is None:
        return None, [Fault((), "too_long", "the line is longer than any item may be", number)]
    try:
        return validation.parse_json(line), []
    except Malformed as error:
        return None, [Fault((), "malformed", error.detail, number)]
    except Invalid as error:
        return None, [replace(fault, line=number) for fault in error.faults]


def model_of(request: Any) -> str:
    """Returns the model that a request names; "": none."""
    params = request.get("params") if isinstance(request, dict) else None
    model = params.get("model") if isinstance(params, dict) else None
    return model if isinstance(model, str) else ""


def item_of(request: Any, loc: Loc, line: int | None = None) -> tuple[dict[str, Any], list[Fault]]:
    """Returns the item of a request, and its faults, those of its model aside."""
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
        return {"custom_id": fields.get("custom_id"), "input": {"messages": PLACEHOLDER}}, faults
    if params.get("stream"):
        fault("unsupported", "a batch can't stream; leave it out", "params", "stream")
    value = input_of(params, partial(_in_params, fault))
    return {"custom_id": fields.get("custom_id"), "input": value}, faults


def _in_params(fault: ReportFault, code: str, message: str, *where: str | int) -> None:
    fault(code, message, "params", *where)


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
    error = {"type": kind, "message": in_anthropics_words(message)}
    return {"type": "errored", "error": {"type": "error", "error": error, "request_id": None}}


def _message(row: Row, batch: BatchRequest) -> dict[str, Any]:
    # The same result has the same id, whenever it is read.
    id = uuid5(NAMESPACE_URL, f"{batch.get('id')}/{row['seq']}")
    return message_of(orjson.loads(row["output"]), ids.show("msg", id), batch.get("model"))
