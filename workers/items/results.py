"""Results of items as rows: outputs become JSON, exceptions become error codes and messages, lists
are put together, and long outputs go to the blob store."""

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

import orjson

from jobs import clock, vectors
from jobs.blobs.payloads import Payloads
from jobs.dialects import dialect
from jobs.dialects.protocol import Dialect
from jobs.errors import BlobStoreUnavailable, Unreadable, without_surrogates
from jobs.intake import validation
from jobs.models.engines.engine_spec import Task
from jobs.models.inputs.generation import TokenUsage
from jobs.models.inputs.tensors import NamedTensors
from jobs.models.model import Limits, Model
from jobs.states import Outcome
from jobs.store.jobs.read import TRACEBACK, TRACEBACK_OF
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from workers.engines import frames
from workers.engines.protocol import InvalidInput, Permanent, RateLimited, Transient
from workers.items.in_flight import InFlightSlice, ItemOutcome
from workers.items.retry import retry_while_away

_log = logging.getLogger(__name__)

_TRANSIENT, _RATE_LIMITED, _ENGINE_ERROR = "transient", "rate_limited", "engine_error"
_MAX_FAILURES = 1000  # of one item, rate limits included
_LONGEST_RETRY_AFTER_S = 86_400.0
_MAX_UNITS = 2**31 - 1  # of the columns results.units and results.truncated
_MAX_MESSAGE = 10_000  # characters of an exception's message
_PLAIN = frozenset({str, dict, list, float, int, bool, type(None)})  # types of JSON


class WrongNumberOfOutputs(Exception):
    """The engine returned more or fewer outputs than it was given inputs."""


class UnusableOutput(Exception):
    """The dialect of a job can make no answer of an output."""


class ListOutput(list[Any]):
    """Outputs of a list's inputs, in order."""


def encode(output: Any) -> bytes:
    """Returns an output as JSON text. Raises ValueError(code, message) where it can't be stored:
    NaN, infinity, NUL, a lone surrogate, or no JSON at all."""
    if isinstance(output, ListOutput):
        return b"[%b]" % b",".join(map(encode, output))
    if type(output) not in _PLAIN:
        import numpy as np  # engines with such outputs have loaded it

        if isinstance(output, np.ndarray | np.generic):
            if output.dtype.kind == "f" and not np.isfinite(output).all():
                raise ValueError("not_finite", "holds NaN or an infinity")
            if output.dtype.kind in "biuf":
                with suppress(orjson.JSONEncodeError):
                    return vectors.array_json(output)
            output = output.tolist()  # text, objects, and layouts that orjson doesn't take
        elif isinstance(output, NamedTensors):
            output = output.as_json()
    raw = validation.storable(output)
    # orjson writes both as null: most outputs have none, and need no walk in Python.
    if b"null" in raw and not isinstance(output, str) and _holds_nan(output):
        raise ValueError("not_finite", "holds NaN or an infinity")
    return raw


def _holds_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_nan, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_nan, value))


def outcome(output: Any) -> tuple[bytes | None, tuple[str, str] | None]:
    """Returns (output as JSON, None), or (None, (error code, message))."""
    if isinstance(output, BaseException):
        return None, (error_code(output), _message(output))
    try:
        return encode(output), None
    except ValueError as error:
        return None, ("invalid_output", f"the output {error.args[-1]}")


def _message(error: BaseException) -> str:
    """Returns an exception's message as a text that can be stored and sent."""
    try:
        message = str(error)
    except Exception:
        message = ""
    return without_surrogates(message.replace("\0", ""))[:_MAX_MESSAGE] or type(error).__name__


def error_code(error: BaseException) -> str:
    """Returns the error code that clients see for an exception of an engine."""
    if isinstance(error, Unreadable):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), _ENGINE_ERROR)


def is_unexpected(error: BaseException) -> bool:
    """Returns True for an exception that an engine didn't mean to raise."""
    return error_code(error) == _ENGINE_ERROR and not isinstance(error, Permanent)


_CODES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (InvalidInput, "invalid_input"),
    ((WrongNumberOfOutputs, UnusableOutput), "invalid_output"),
    (RateLimited, _RATE_LIMITED),
    ((Transient, ConnectionError, TimeoutError), _TRANSIENT),
)


def rows(
    in_flight: InFlightSlice, limits: Limits, model: Model | None = None
) -> tuple[list[Result], list[Attempt]]:
    """Returns the results of a slice's items, and their failures that will be retried. model: the
    one that gave outputs; None: there are none."""
    results, attempts = [], []
    lease, failures, all_ended = in_flight.lease, in_flight.failures, join_lists(in_flight)
    if model and lease.dialect != "native":
        words, task = dialect(lease.dialect), model.effective_task
        all_ended = [_checked(one, words, task) for one in all_ended]
    stored = None if failures else _stored_together([one.output for one in all_ended])
    if stored is not None:
        return _succeeded(lease, all_ended, stored), []
    first_with: dict[str, int] = {}
    for ended in all_ended:
        output, error = _stored(ended.output)
        if error and ended.seq in in_flight.lists and isinstance(ended.output, BaseException):
            error = error[0], f"input {ended.part} of the list: {error[1]}"
        earlier = failures.get(ended.seq, [])
        delay_s = error and _retry_delay_s(ended.output, error[0], earlier, limits)
        if error is not None and delay_s is not None:
            n = len(earlier) + 1
            attempts.append(_attempt(lease, ended, _error(error), n, delay_s))
        else:
            failed = error and _error(error)
            if failed and earlier:
                failed = {**failed, "attempts": [*earlier, failed]}
            if failed and (its := frames.of(ended.output)):
                failed |= _frames(its, first_with.setdefault(its, ended.seq), ended.seq)
            results.append(_result(lease, ended, output, failed, earlier))
    return results, attempts


def _checked(ended: ItemOutcome, words: Dialect, task: Task) -> ItemOutcome:
    """Fails an item of whose output its dialect can make no answer: lines and counts agree, since
    both go by the outcome."""
    if isinstance(ended.output, BaseException):
        return ended
    problem = words.output_problem(ended.output, task)
    return replace(ended, output=UnusableOutput(problem)) if problem else ended


def _frames(its: str, first: int, seq: int) -> dict[str, Any]:
    """Returns the frames of an item's error or, where an item of its slice has the same, that
    one's seq. A job's error has them last (`jobs.store.jobs.read.PLAIN_ERROR`)."""
    return {TRACEBACK: its} if first == seq else {TRACEBACK_OF: first}


def _stored_together(outputs: Sequence[Any]) -> Sequence[str | bytes] | None:
    """Returns plain texts as JSON, or vectors packed; None where each has to be looked at."""
    texts = validation.storable_texts(outputs)
    return vectors.pack_all(outputs) if texts is None else [text.decode() for text in texts]


def _stored(output: Any) -> tuple[str | bytes | None, tuple[str, str] | None]:
    """Returns one output as JSON or packed, or its error, as `outcome` does."""
    if type(output) not in _PLAIN and (packed := vectors.pack_all([output])):
        return packed[0], None
    text, error = outcome(output)
    return None if text is None else text.decode(), error


def _succeeded(
    lease: Lease, all_ended: Sequence[ItemOutcome], outputs: Sequence[str | bytes]
) -> list[Result]:
    """Returns the results of items that succeeded at the first attempt."""
    job, tenant = lease.job_id, lease.tenant
    return [
        Result(
            job,
            tenant,
            ended.seq,
            "succeeded",
            min(max(int(ended.size), 0), _MAX_UNITS),  # one call fewer an item
            ended.wait_ms,
            ended.launch_id,
            output,
            None,
            1,
            ended.device_us,
            ended.tokens,
            ended.truncated and _units(ended.truncated),
        )
        for ended, output in zip(all_ended, outputs, strict=True)
    ]


def _units(number: float) -> int:
    """Returns a number of an engine as the columns of results hold it."""
    return min(max(int(number), 0), _MAX_UNITS)


def join_lists(in_flight: InFlightSlice) -> Sequence[ItemOutcome]:
    """Returns one outcome an item; none for a list of which an input was withdrawn."""
    if not in_flight.lists:
        return in_flight.outcomes
    items: list[ItemOutcome] = []
    parts: dict[int, list[ItemOutcome]] = {seq: [] for seq in in_flight.lists}
    for one in in_flight.outcomes:
        parts.get(one.seq, items).append(one)
    whole = [outcomes for seq, outcomes in parts.items() if len(outcomes) == in_flight.lists[seq]]
    return items + [_join(outcomes) for outcomes in whole]


def _join(outcomes: Sequence[ItemOutcome]) -> ItemOutcome:
    """Joins the outcomes of a list's inputs. The list fails with its first input that failed, which
    `part` names then."""
    parts = sorted(outcomes, key=lambda one: one.part)
    failed = next((one for one in parts if isinstance(one.output, BaseException)), None)
    return ItemOutcome(
        parts[0].seq,
        sum(one.size for one in parts),
        max(one.wait_ms for one in parts),
        max((one.launch_id for one in parts if one.launch_id is not None), default=None),
        failed.output if failed else ListOutput(one.output for one in parts),
        sum(one.device_us for one in parts),
        failed.part if failed else 0,
        _sum([one.tokens for one in parts if one.tokens]),
        sum(one.truncated for one in parts),
    )


def _sum(tokens: Sequence[TokenUsage]) -> TokenUsage | None:
    """Adds the tokens of a list's inputs; None where no input has any."""
    if not tokens:
        return None
    return TokenUsage(
        sum(one.input for one in tokens),
        sum(one.cached for one in tokens),
        sum(one.output for one in tokens),
    )


def stash(
    payloads: Payloads, results: Sequence[Result], give_up_s: float
) -> Sequence[Result] | None:
    """Writes long outputs to the blob store, and returns the results with references in their
    place. Returns None where the store was away until `give_up_s` (monotonic)."""
    most = payloads.over_bytes  # in characters: an output in another alphabet may have more bytes
    if not [one for one in results if type(one.output) is str and len(one.output) > most]:
        return results
    return retry_while_away(
        lambda: _stash(payloads, results),
        BlobStoreUnavailable,
        give_up_s,
        lambda error: _log.warning("%s", error),
    )


def _stash(payloads: Payloads, results: Sequence[Result]) -> Sequence[Result]:
    rows: list[Result] = []
    for job, group in groupby(results, key=lambda result: result.job_id):
        stashed = payloads.stash("out", job)
        for result in group:
            if isinstance(result.output, str) and len(result.output) > payloads.over_bytes:
                output = stashed.add(result.seq, result.output.encode())
                rows.append(replace(result, output=output))
            else:
                rows.append(result)
        stashed.finish()
    return rows


def _retry_delay_s(
    output: Any, code: str, earlier: Sequence[Mapping[str, Any]], limits: Limits
) -> float | None:
    """Returns the seconds until the next attempt: exponential backoff with full jitter, after the
    delay that a rate limit names. Returns None where there is no further attempt."""
    if code not in (_TRANSIENT, _RATE_LIMITED) or len(earlier) >= _MAX_FAILURES:
        return None
    counted = sum(error["code"] != _RATE_LIMITED for error in earlier)
    longest_ms = min(limits.max_backoff_ms, limits.backoff_ms * 2 ** min(counted, 20))
    backoff_s = clock.jitter(longest_ms / 1000)
    if code == _RATE_LIMITED:
        return backoff_s + _retry_after_s(output)
    return backoff_s if counted + 1 < limits.max_attempts else None


def _retry_after_s(limit: RateLimited) -> float:
    """Returns the delay that an engine named, or 0 where it makes no sense."""
    after_s = limit.retry_after_s
    sensible = isinstance(after_s, int | float) and 0 <= after_s <= _LONGEST_RETRY_AFTER_S
    return float(after_s) if sensible else 0.0


def _error(error: tuple[str, str]) -> dict[str, Any]:
    return {"code": error[0], "message": error[1]}


def _attempt(
    lease: Lease, ended: ItemOutcome, error: dict[str, Any], n: int, delay_s: float
) -> Attempt:
    text = orjson.dumps(error).decode()
    key = lease.job_id, lease.tenant, ended.seq
    return Attempt(*key, n, text, ended.launch_id, delay_s, ended.device_us)


def _result(
    lease: Lease,
    ended: ItemOutcome,
    output: str | bytes | None,
    error: dict[str, Any] | None,
    earlier: Sequence[Any],
) -> Result:
    state: Outcome = "failed" if error else "succeeded"
    return Result(
        lease.job_id,
        lease.tenant,
        ended.seq,
        state,
        _units(ended.size),
        ended.wait_ms,
        ended.launch_id,
        output,
        None if error is None else orjson.dumps(error).decode(),
        len(earlier) + 1,
        ended.device_us,
        ended.tokens,
        0 if error else _units(ended.truncated),
    )
