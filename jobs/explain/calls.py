"""Diagnosis of one call, from its record: its latency, or why it failed."""

from jobs.calls.records import CallRecord
from jobs.explain.diagnosis import Code, Diagnosis, Severity
from jobs.explain.formatting import count, duration, percent

_DOMINANT_SHARE = 0.4  # of the latency
_MUCH_PADDING = 0.5  # of the computed size

_ENDS: dict[str, tuple[Code, str, str]] = {
    "overloaded": (
        "overload",
        "the queue of calls was full, and its tenant had used its share of it",
        "retry after Retry-After; more workers shorten the queue",
    ),
    "no_worker": (
        "no_worker",
        "no worker was ready for it",
        "`millrace models` shows the state of the model in all workers",
    ),
    "quota_exceeded": (
        "call_refused",
        "its tenant's limits for calls were exhausted",
        "the RateLimit headers say when there is room again; `millrace limits` shows the limits",
    ),
    "cancelled": ("call_cancelled", "its client disconnected before the answer", ""),
    "worker_lost": (
        "call_failed",
        "two workers died while they processed it",
        "`millrace why` says how workers died; the call may be the cause",
    ),
    "rate_limited": (
        "upstream_limited",
        "the upstream server of the model limited the rate",
        "its operator sets the limits",
    ),
}


def explain_call(record: CallRecord) -> list[Diagnosis]:
    """Returns the findings, most important first; never none."""
    if record.outcome == "succeeded":
        return _answered(record)
    if record.outcome == "predicted_wait":
        return [_rejected(record)]
    if record.outcome == "deadline_passed":
        return [_timed_out(record)]
    code, words, advice = _ENDS.get(
        record.outcome,
        ("call_failed", f"it ended as {record.outcome}", "its response has the error message"),
    )
    words = f"the call ended after {_ms(record.total_ms)}: {words}"
    return [_diagnosis(record, code, words, advice)]


def _rejected(record: CallRecord) -> Diagnosis:
    needed_s, allowed_s = (record.needed_ms or 0.0) / 1000, (record.allowed_ms or 0.0) / 1000
    return _diagnosis(
        record,
        "overload",
        f"rejected at once: the predicted latency was {duration(needed_s)}, of "
        f"{duration(allowed_s)} left (target {_ms(record.target_ms)}, timeout "
        f"{_ms(record.timeout_ms)})",
        "retry after Retry-After; a longer timeout helps only with a longer target; more workers "
        "answer more calls in time",
        {"needed_ms": record.needed_ms or 0.0, "allowed_ms": record.allowed_ms or 0.0},
    )


def _timed_out(record: CallRecord) -> Diagnosis:
    return _diagnosis(
        record,
        "call_late",
        f"no answer within its timeout of {_ms(record.timeout_ms)}: it waited in lane "
        f"{record.lane}, or its launch took too long",
        f"`millrace why {record.key}` says what its model waits for; a longer timeout_ms if a "
        "late answer is of use",
        {"timeout_ms": float(record.timeout_ms)},
    )


def _answered(record: CallRecord) -> list[Diagnosis]:
    answer_s, target_s = record.answer_ms / 1000, record.target_ms / 1000
    late = answer_s > target_s
    verdict = "later than its target of" if late else "its target is"
    answered = "its first token came after" if record.generated else "answered in"
    verdict = f"{answered} {duration(answer_s)}, {verdict} {duration(target_s)}"
    if record.generated:
        verdict += f"; all of it took {duration(record.total_ms / 1000)}{_gaps(record)}"
    spent_ms = stages(record)
    spent = ", ".join(f"{_ms(ms)} {what}" for what, ms in spent_ms if ms >= 0.05)
    findings = [
        _diagnosis(
            record,
            "call_late" if late else "call_in_time",
            f"{verdict}: {spent}",
            "",
            {"total_ms": record.total_ms, **dict(spent_ms)},
        )
    ]
    return [*(_causes(record) if late else ()), *findings]


def _gaps(record: CallRecord) -> str:
    gap_ms, preempted = record.timing.get("itl_ms"), int(record.timing.get("preemptions", 0))
    words = f", a token every {_ms(float(gap_ms))}" if gap_ms else ""
    return words + (f", {count(preempted, 'preemption')}" if preempted else "")


def stages(record: CallRecord) -> list[tuple[str, float]]:
    """Returns (stage in words, ms) in order; the rest of the total is the api's."""
    timing = record.timing
    known = [
        ("in preprocessing", float(timing.get("preprocess_ms", 0.0))),
        ("in its lane", float(timing.get("queue_ms", 0.0))),
        ("from flush to the device", float(timing.get("batch_ms", 0.0))),
        ("on the device", float(timing.get("engine_ms", 0.0))),
        ("in the prefill", float(timing.get("prefill_ms", 0.0))),
        ("decoding", float(timing.get("decode_ms", 0.0))),
        ("in postprocessing", float(timing.get("post_ms", 0.0))),
    ]
    rest_ms = max(0.0, record.total_ms - sum(ms for _, ms in known))
    return [("in the api and in transit", rest_ms), *known]


def _causes(record: CallRecord) -> list[Diagnosis]:
    timing, total_ms = record.timing, max(1e-9, record.answer_ms)
    queue_ms, engine_ms = float(timing.get("queue_ms", 0.0)), float(timing.get("engine_ms", 0.0))
    gateway_ms = stages(record)[0][1]
    findings = []
    if queue_ms >= _DOMINANT_SHARE * total_ms:
        findings.append(_queued(record, queue_ms))
    if engine_ms >= _DOMINANT_SHARE * total_ms:
        findings.append(_launched(record, engine_ms))
    prefill_ms = float(timing.get("prefill_ms", 0.0))
    if prefill_ms >= _DOMINANT_SHARE * total_ms:
        findings.append(_prefilled(record, prefill_ms))
    if gateway_ms >= _DOMINANT_SHARE * total_ms:
        words = f"{_ms(gateway_ms)} of it passed in the api and in transit"
        advice = "more api processes, on CPUs of their own; `millrace why` says how busy the api is"
        findings.append(_diagnosis(record, "api_busy", words, advice, {"gateway_ms": gateway_ms}))
    return findings


def _queued(record: CallRecord, queue_ms: float) -> Diagnosis:
    reason, own = record.timing.get("flush", ""), int(record.timing.get("batch_size", 1))
    share = percent(queue_ms / max(1e-9, record.answer_ms))
    if record.generated:
        return _waited_for_blocks(record, queue_ms, share)
    evidence: dict[str, float | str] = {
        "queue_ms": queue_ms,
        "flush": str(reason),
        "lane": record.lane,
    }
    if reason in ("pace", "deadline", "drain"):
        words = (
            f"it waited {_ms(queue_ms)} ({share}) in lane {record.lane}, and left because its "
            f"time was up ({reason}), with {count(own, 'entry', 'entries')} of its own tenant: it "
            "waited for a device that was busy, or for a larger batch"
        )
        return _diagnosis(
            record,
            "waiting_to_batch",
            words,
            f"`millrace why {record.key}` says if devices were busy: then more replicas, else "
            "fewer lanes (parameters, buckets) or a shorter target_ms",
            evidence,
        )
    words = (
        f"it waited {_ms(queue_ms)} ({share}) in lane {record.lane} for a device behind "
        f"others, and left in a launch that was {reason or 'full'}"
    )
    advice = "more workers, or a larger limits.max_batch if launches can take more"
    return _diagnosis(record, "waiting_for_device", words, advice, evidence)


def _waited_for_blocks(record: CallRecord, queue_ms: float, share: str) -> Diagnosis:
    return _diagnosis(
        record,
        "kv_cache_full",
        f"it waited {_ms(queue_ms)} ({share} of the time to its first token) in lane "
        f"{record.lane}, until KV blocks were free for it",
        f"`millrace why {record.key}` says how full the cache is, and whose sequences fill it",
        {"queue_ms": queue_ms, "lane": record.lane},
    )


def _launched(record: CallRecord, engine_ms: float) -> Diagnosis:
    predicted_ms = float(record.timing.get("predicted_ms", 0.0))
    padding = float(record.timing.get("padding", 0.0))
    padded = f"; {percent(padding)} of its tenant's part of it was padding"
    return _diagnosis(
        record,
        "slow_model",
        f"its launch took {_ms(engine_ms)} on the device (predicted: {_ms(predicted_ms)}), of a "
        f"target of {_ms(record.target_ms)}{padded if padding >= _MUCH_PADDING else ''}",
        "a faster device; a smaller limits.max_batch or max_tokens if launches are long because "
        "they are full; or a target_ms that the model can meet",
        {"engine_ms": engine_ms, "predicted_ms": predicted_ms, "padding": padding},
    )


def _prefilled(record: CallRecord, prefill_ms: float) -> Diagnosis:
    return _diagnosis(
        record,
        "slow_model",
        f"its prompt took {_ms(prefill_ms)} to compute, of a target of {_ms(record.target_ms)} "
        "until the first token",
        "a larger target_itl_ms lets a step compute more of a prompt; a faster device; or a "
        "target_ttft_ms that the model can meet",
        {"prefill_ms": prefill_ms},
    )


def _diagnosis(
    record: CallRecord,
    code: Code,
    words: str,
    advice: str,
    evidence: dict[str, float | str] | None = None,
) -> Diagnosis:
    severity: Severity = "info" if code in ("call_in_time", "call_cancelled") else "warning"
    return Diagnosis(code, severity, f"call:{record.id}", words, advice, evidence or {})


def _ms(milliseconds: float) -> str:
    return duration(milliseconds / 1000)
