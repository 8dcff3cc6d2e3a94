"""From what the device gave to rows: outputs become JSON, errors become words."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import orjson

from jobs import items
from jobs.errors import Unreadable
from jobs.states import Outcome
from jobs.store.settling import Result
from workers.engines.protocol import InvalidInput
from workers.inhand import Ended, Holding

_NUMPY = (np.ndarray, np.generic)


class WrongNumberOfOutputs(Exception):
    """The engine gave more or fewer outputs than it was given inputs."""


def encode(output: Any) -> bytes:
    """The JSON text of an output; raises ValueError(code, message) where it can't be stored:
    NaN, infinity, NUL, a lone surrogate, or no JSON at all."""
    if isinstance(output, _NUMPY):
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            raise ValueError("not_finite", "holds NaN or an infinity")
        if output.dtype.kind in "biuf":
            with suppress(orjson.JSONEncodeError):
                return orjson.dumps(output, option=orjson.OPT_SERIALIZE_NUMPY)
        output = output.tolist()  # text, objects, and layouts that orjson doesn't take
    raw = items.storable(output)
    if not isinstance(output, str) and _holds_nan(output):
        raise ValueError("not_finite", "holds NaN or an infinity")
    return raw


def _holds_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_nan, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_nan, value))


def outcome(output: Any) -> tuple[bytes | None, tuple[str, str] | None]:
    """(output as JSON, None), or (None, (code, message)) of what went wrong."""
    if isinstance(output, BaseException):
        return None, (_code(output), _words(output))
    try:
        return encode(output), None
    except ValueError as error:
        return None, ("invalid_output", f"the output {error.args[-1]}")


def _words(error: BaseException) -> str:
    """What an exception says, as a text that can be stored and sent."""
    try:
        said = str(error)
    except Exception:
        said = ""
    return said.replace("\0", "").encode("utf-8", "replace").decode() or type(error).__name__


def _code(error: BaseException) -> str:
    if isinstance(error, Unreadable):
        return error.code
    if isinstance(error, InvalidInput):
        return "invalid_input"
    return "invalid_output" if isinstance(error, WrongNumberOfOutputs) else "engine_error"


def results(holdings: Sequence[Holding]) -> list[Result]:
    """The rows of all that ended in these slices."""
    return [_result(holding, ended) for holding in holdings for ended in holding.ended]


def _result(holding: Holding, ended: Ended) -> Result:
    lease = holding.lease
    output, error = outcome(ended.output)
    word: Outcome = "failed" if error else "succeeded"
    return Result(
        lease.job_id,
        lease.tenant,
        ended.seq,
        word,
        ended.size,
        ended.wait_ms,
        ended.launch_id,
        None if output is None else output.decode(),
        error and _error_text(*error),
    )


def _error_text(code: str, message: str) -> str:
    return orjson.dumps({"code": code, "message": message}).decode()
