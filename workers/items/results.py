"""From what the device gave to rows: outputs become JSON, errors become words."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import orjson

from jobs import clock
from jobs.errors import Unreadable
from jobs.intake import validation
from jobs.models.inputs.tensors import NamedTensors
from jobs.models.model import Limits
from jobs.states import Outcome
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from workers.engines.protocol import InvalidInput, RateLimited, Transient
from workers.items.in_flight import Ended, InFlightSlice
from workers.items.list_inputs import Several, joined

_TRANSIENT, _RATE_LIMITED = "transient", "rate_limited"
_MOST_FAILURES = 1000  # of one item, rate limits included
_LONGEST_RETRY_AFTER_S = 86_400.0
_MOST_UNITS = 2**31 - 1
_MOST_WORDS = 10_000  # characters of what an exception says
_NUMPY = (np.ndarray, np.generic)


class WrongNumberOfOutputs(Exception):
    """The engine gave more or fewer outputs than it was given inputs."""


def encode(output: Any) -> bytes:
    """The JSON text of an output; raises ValueError(code, message) where it can't be stored:
    NaN, infinity, NUL, a lone surrogate, or no JSON at all."""
    if isinstance(output, Several):
        return b"[%b]" % b",".join(map(encode, output))
    if isinstance(output, _NUMPY):
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            raise ValueError("not_finite", "holds NaN or an infinity")
        if output.dtype.kind in "biuf":
            with suppress(orjson.JSONEncodeError):
                return orjson.dumps(output, option=orjson.OPT_SERIALIZE_NUMPY)
        output = output.tolist()  # text, objects, and layouts that orjson doesn't take
    if isinstance(output, NamedTensors):
        output = output.as_json()
    raw = validation.storable(output)
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
        return None, (code_of(output), _words(output))
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
    return (
        said.replace("\0", "").encode("utf-8", "replace").decode()[:_MOST_WORDS]
        or type(error).__name__
    )


def code_of(error: BaseException) -> str:
    """What clients are told that it is."""
    if isinstance(error, Unreadable):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), "engine_error")


_CODES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (InvalidInput, "invalid_input"),
    (WrongNumberOfOutputs, "invalid_output"),
    (RateLimited, _RATE_LIMITED),
    ((Transient, ConnectionError, TimeoutError), _TRANSIENT),
)


def rows(holding: InFlightSlice, limits: Limits) -> tuple[list[Result], list[Attempt]]:
    """All that ended in this slice: results, and failures that are not final."""
    results, attempts = [], []
    for ended in joined(holding):
        output, error = outcome(ended.output)
        if error and ended.seq in holding.lists and isinstance(ended.output, BaseException):
            error = error[0], f"input {ended.part} of the list: {error[1]}"
        tried = holding.failures.get(ended.seq, [])
        delay_s = error and _delay_s(ended.output, error[0], tried, limits)
        if error is not None and delay_s is not None:
            attempts.append(_attempt(holding.lease, ended, _error(error), len(tried) + 1, delay_s))
        else:
            results.append(_result(holding.lease, ended, output, error and _error(error), tried))
    return results, attempts


def _delay_s(
    output: Any, code: str, tried: Sequence[Mapping[str, Any]], limits: Limits
) -> float | None:
    """Until the next try: exponential backoff with full jitter, or what the limit says. None:
    there is none."""
    if code not in (_TRANSIENT, _RATE_LIMITED) or len(tried) >= _MOST_FAILURES:
        return None
    counted = sum(error["code"] != _RATE_LIMITED for error in tried)
    longest_ms = min(limits.max_backoff_ms, limits.backoff_ms * 2 ** min(counted, 20))
    backoff_s = clock.jitter(longest_ms / 1000)
    if code == _RATE_LIMITED:
        return backoff_s + _asked_s(output)
    return backoff_s if counted + 1 < limits.max_attempts else None


def _asked_s(limit: RateLimited) -> float:
    """What an engine says may be anything."""
    asked_s = limit.retry_after_s
    sensible = isinstance(asked_s, int | float) and 0 <= asked_s <= _LONGEST_RETRY_AFTER_S
    return float(asked_s) if sensible else 0.0


def _error(error: tuple[str, str]) -> dict[str, Any]:
    return {"code": error[0], "message": error[1]}


def _attempt(lease: Lease, ended: Ended, error: dict[str, Any], n: int, delay_s: float) -> Attempt:
    text = orjson.dumps(error).decode()
    of = lease.job_id, lease.tenant, ended.seq
    return Attempt(*of, n, text, ended.launch_id, delay_s, ended.device_us)


def _result(
    lease: Lease,
    ended: Ended,
    output: bytes | None,
    error: dict[str, Any] | None,
    tried: Sequence[Any],
) -> Result:
    word: Outcome = "failed" if error else "succeeded"
    if error and tried:
        error = {**error, "attempts": [*tried, error]}
    return Result(
        lease.job_id,
        lease.tenant,
        ended.seq,
        word,
        min(max(int(ended.size), 0), _MOST_UNITS),
        ended.wait_ms,
        ended.launch_id,
        None if output is None else output.decode(),
        None if error is None else orjson.dumps(error).decode(),
        len(tried) + 1,
        ended.device_us,
    )
