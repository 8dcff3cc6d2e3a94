"""Why one call took as long as it did, or wasn't answered: from what was kept of it."""

from jobs.calls.records import CallRecord
from jobs.explain.diagnosis import Code, Diagnosis, Severity
from jobs.explain.words import count, percent, span

_MOST_OF_IT = 0.4
"""Of its time: what took more of it is where it went."""
_MUCH_PADDING = 0.5

_ENDS: dict[str, tuple[Code, str, str]] = {
    "overloaded": (
        "overload",
        "as many calls waited as may wait, and its tenant had its share of them",
        "come back after Retry-After; more workers make the queue shorter",
    ),
    "no_worker": (
        "no_worker",
        "no worker was ready for it",
        "`millrace models` says in which state the model is, in how many workers",
    ),
    "quota_exceeded": (
        "call_refused",
        "its tenant's limits for calls were used up",
        "the RateLimit headers of answers say when there is room; `millrace limits` shows them",
    ),
    "cancelled": ("call_cancelled", "its client went away before there was an answer", ""),
    "worker_lost": (
        "call_failed",
        "two workers died while they had it in hand",
        "`millrace why` says how workers die; the call may be the reason",
    ),
    "rate_limited": (
        "upstream_limited",
        "the server that runs the model said to come back later",
        "its operator's limits decide",
    ),
}


def explain_call(record: CallRecord) -> list[Diagnosis]:
    """What is to be said of it, the most telling first; never nothing."""
    if record.outcome == "succeeded":
        return _of_answer(record)
    if record.outcome == "predicted_wait":
        return [_of_prediction(record)]
    if record.outcome == "deadline_passed":
        return [_of_deadline(record)]
    code, words, advice = _ENDS.get(
        record.outcome,
        ("call_failed", f"it ended as {record.outcome}", "the answer had the error's words"),
    )
    words = f"the call ended after {span(record.total_ms / 1000)}: {words}"
    return [_found(record, code, words, advice)]


def _of_prediction(record: CallRecord) -> Diagnosis:
    needed_s, allowed_s = (record.needed_ms or 0.0) / 1000, (record.allowed_ms or 0.0) / 1000
    return _found(
        record,
        "overload",
        f"refused at once: an answer was predicted to take {span(needed_s)}, and "
        f"{span(allowed_s)} were left for it (target {span(record.target_ms / 1000)}, timeout "
        f"{span(record.timeout_ms / 1000)})",
        "come back after Retry-After; a longer timeout helps only where the target is longer too; "
        "more workers answer more calls in time",
        {"needed_ms": record.needed_ms or 0.0, "allowed_ms": record.allowed_ms or 0.0},
    )


def _of_deadline(record: CallRecord) -> Diagnosis:
    return _found(
        record,
        "call_late",
        f"no answer within its timeout of {span(record.timeout_ms / 1000)}: it waited in the lane "
        f"{record.lane}, or its launch took longer",
        f"`millrace why {record.key}` says what its model waits for; a longer timeout_ms, if "
        "later is better than never",
        {"timeout_ms": float(record.timeout_ms)},
    )


def _of_answer(record: CallRecord) -> list[Diagnosis]:
    total_s, target_s = record.total_ms / 1000, record.target_ms / 1000
    late = total_s > target_s
    said = f"answered in {span(total_s)}, " + (
        f"later than its target of {span(target_s)}" if late else f"its target is {span(target_s)}"
    )
    stages = _stages(record)
    spent = ", ".join(f"{span(ms / 1000)} {what}" for what, ms in stages if ms >= 0.05)
    found = [
        _found(
            record,
            "call_late" if late else "call_in_time",
            f"{said}: {spent}",
            "",
            {"total_ms": record.total_ms, **dict(stages)},
        )
    ]
    return [*(_causes(record) if late else ()), *found]


def _stages(record: CallRecord) -> list[tuple[str, float]]:
    """(in words, ms), in their order; what no stage accounts for is the api's."""
    timing = record.timing
    known = [
        ("to be prepared", float(timing.get("preprocess_ms", 0.0))),
        ("in its lane", float(timing.get("queue_ms", 0.0))),
        ("from closing the launch to the device", float(timing.get("batch_ms", 0.0))),
        ("on the device", float(timing.get("engine_ms", 0.0))),
        ("after it", float(timing.get("post_ms", 0.0))),
    ]
    rest_ms = max(0.0, record.total_ms - sum(ms for _, ms in known))
    return [("in the api and on the way", rest_ms), *known]


def _causes(record: CallRecord) -> list[Diagnosis]:
    timing, total_ms = record.timing, max(1e-9, record.total_ms)
    queue_ms, engine_ms = float(timing.get("queue_ms", 0.0)), float(timing.get("engine_ms", 0.0))
    gateway_ms = _stages(record)[0][1]
    found = []
    if queue_ms >= _MOST_OF_IT * total_ms:
        found.append(_of_waiting(record, queue_ms))
    if engine_ms >= _MOST_OF_IT * total_ms:
        found.append(_of_engine(record, engine_ms))
    if gateway_ms >= _MOST_OF_IT * total_ms:
        words = f"{span(gateway_ms / 1000)} of it went by in the api and on the way"
        advice = "more api processes, on CPUs of their own; `millrace why` says how busy it is"
        found.append(_found(record, "api_busy", words, advice, {"gateway_ms": gateway_ms}))
    return found


def _of_waiting(record: CallRecord, queue_ms: float) -> Diagnosis:
    reason, own = record.timing.get("flush", ""), int(record.timing.get("batch_size", 1))
    share = percent(queue_ms / max(1e-9, record.total_ms))
    evidence: dict[str, float | str] = {
        "queue_ms": queue_ms,
        "flush": str(reason),
        "lane": record.lane,
    }
    if reason in ("pace", "deadline", "drain"):
        words = (
            f"it waited {span(queue_ms / 1000)} ({share}) in the lane {record.lane}, and left "
            f"because its time was up ({reason}), with {count(own, 'entry', 'entries')} of its own "
            "tenant: it waited for a device that others had, or for company"
        )
        return _found(
            record,
            "waiting_to_batch",
            words,
            f"`millrace why {record.key}` says whether devices were busy: more replicas if they "
            "were, fewer lanes (parameters, buckets) or a shorter target_ms if they weren't",
            evidence,
        )
    words = (
        f"it waited {span(queue_ms / 1000)} ({share}) in the lane {record.lane} for a device, and "
        f"left in a launch that was {reason or 'full'}: there were others before it"
    )
    advice = "more workers, or a larger limits.max_batch where a launch can take more"
    return _found(record, "waiting_for_device", words, advice, evidence)


def _of_engine(record: CallRecord, engine_ms: float) -> Diagnosis:
    predicted_ms = float(record.timing.get("predicted_ms", 0.0))
    padding = float(record.timing.get("padding", 0.0))
    padded = f"; {percent(padding)} of what it computed for its tenant was padding"
    return _found(
        record,
        "slow_model",
        f"its launch took {span(engine_ms / 1000)} on the device (predicted: "
        f"{span(predicted_ms / 1000)}), of a target of {span(record.target_ms / 1000)}"
        + padded
        * (padding >= _MUCH_PADDING),
        "a faster device; a smaller limits.max_batch or max_tokens where launches are long because "
        "they are full; or a target_ms that the model can make",
        {"engine_ms": engine_ms, "predicted_ms": predicted_ms, "padding": padding},
    )


def _found(
    record: CallRecord,
    code: Code,
    words: str,
    advice: str,
    evidence: dict[str, float | str] | None = None,
) -> Diagnosis:
    severity: Severity = "info" if code in ("call_in_time", "call_cancelled") else "warning"
    return Diagnosis(code, severity, f"call:{record.id}", words, advice, evidence or {})
