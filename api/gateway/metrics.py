"""Metrics of a call: its outcome, its stages, and whether it met its model's target."""

import asyncio
from collections.abc import Mapping
from typing import Any

from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect

from jobs.errors import DeadlinePassed, MillraceError, TooLate, Unavailable
from jobs.models.model import Model
from jobs.states import JobClass
from jobs.telemetry.metrics import record


def gateway_ms(total_ms: float, timing: Mapping[str, Any]) -> float:
    """Returns the milliseconds that no other stage took."""
    others_ms: float = sum([timing.get(key, 0.0) for key in record.TIMING_STAGES])
    if "decode_ms" in timing:
        others_ms += timing["decode_ms"] + timing.get("prefill_ms", 0.0)
    return round(max(0.0, total_ms - others_ms), 3)


def record_answered(
    model: Model, job_class: JobClass, seconds: float, timing: Mapping[str, Any]
) -> None:
    """Records a call that succeeded. One that generates met its target with its first token; its
    engine took it from the start of its prefill to its last token."""
    if "ttft_ms" in timing:
        met = timing["ttft_ms"] <= model.target_ttft_ms
        engine_ms = timing.get("prefill_ms", 0.0) + timing.get("decode_ms", 0.0)
        timing = {**timing, "engine_ms": engine_ms}
    else:
        met = seconds * 1000 <= model.target_ms
    record.call_answered(model.key, job_class, met, seconds, timing)


def record_failed(model: Model, job_class: JobClass, timeout_ms: int, error: BaseException) -> None:
    """Records a call that failed or was rejected."""
    met = False if _is_ours(model, timeout_ms, error) else None
    record.call(model.key, job_class, _outcome(error), met)


def _outcome(error: BaseException) -> str:
    if isinstance(error, ClientDisconnect | asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, MillraceError):
        return error.code
    return Unavailable.code if isinstance(error, RedisError) else MillraceError.code


def _is_ours(model: Model, timeout_ms: int, error: BaseException) -> bool:
    """Returns True if the failure misses the target; a shorter timeout than the target can't."""
    if isinstance(error, TooLate | DeadlinePassed):
        return timeout_ms >= model.answer_target_ms
    if isinstance(error, MillraceError):
        return error.status >= 500
    return _outcome(error) != "cancelled"
