"""Where the time of a call went, by what was kept of it; the page that explains each diagnosis."""

import re
from pathlib import Path
from typing import Any

from jobs.calls.records import CallRecord
from jobs.explain.calls import explain_call
from jobs.explain.diagnosis import CODES, Diagnosis
from tests.support.cases import each


def call(outcome: str = "succeeded", **timing: Any) -> list[Diagnosis]:
    record = CallRecord(
        "call_1", "t", "m", "1", "standard", outcome, 0.0, 250, 5000, 7, "{}/16", timing,
        needed_ms=700.0, allowed_ms=200.0,
    )  # fmt: skip
    assert CallRecord.unpack(record.pack()) == record
    return explain_call(record)


def test_one_in_time_or_late_says_where_its_time_went() -> None:
    [only] = call(queue_ms=3.1, batch_ms=0.8, engine_ms=9.7, post_ms=0.2, total_ms=14.2)
    assert (only.code, only.severity) == ("call_in_time", "info")
    assert "answered in 14.2 ms, its target is 250 ms: 0.4 ms in the api" in only.words
    assert "3.1 ms in its lane" in only.words
    assert [one.code for one in call(queue_ms=240, flush="full", total_ms=249)] == ["call_in_time"]
    cases = [
        ({"queue_ms": 310, "flush": "full"}, "waiting_for_device", "a launch that was full"),
        ({"queue_ms": 310, "flush": "deadline"}, "waiting_to_batch", "its time was up (deadline)"),
        ({"engine_ms": 300, "predicted_ms": 90}, "slow_model", "(predicted: 90 ms)"),
        ({"engine_ms": 300, "padding": 0.8}, "slow_model", "80 % of its tenant's part"),
        ({"engine_ms": 40}, "api_busy", "360 ms of it passed in the api"),
    ]
    for (timing, code, words), case in each(cases):
        with case:
            first, last = call(**timing, total_ms=400)
            assert (first.code, last.code) == (code, "call_late")
            assert words in first.words
            assert "later than its target of 250 ms" in last.words


def test_one_without_an_answer_says_why() -> None:
    cases = [
        ("predicted_wait", "overload", "latency was 700 ms, of 200 ms left"),
        ("overloaded", "overload", "the queue of calls was full"),
        ("no_worker", "no_worker", "no worker was ready"),
        ("quota_exceeded", "call_refused", "limits for calls were exhausted"),
        ("deadline_passed", "call_late", "no answer within its timeout of 5 s"),
        ("cancelled", "call_cancelled", "its client disconnected"),
        ("worker_lost", "call_failed", "two workers died"),
        ("engine_error", "call_failed", "ended as engine_error"),
    ]
    for (outcome, code, words), case in each(cases):
        with case:
            [only] = call(outcome, total_ms=12.0)
            assert only.code == code
            assert words in only.words


GENERATED = {"prefill_ms": 60.0, "decode_ms": 900.0, "itl_ms": 30.0, "total_ms": 1200.0}


def test_one_that_generates_is_held_to_its_first_token_and_says_what_took_its_time() -> None:
    [only] = call(**GENERATED, queue_ms=40.0, ttft_ms=100.0)
    assert (only.code, only.severity) == ("call_in_time", "info")
    assert "its first token came after 100 ms, its target is 250 ms" in only.words
    assert "all of it took 1.2 s, a token every 30 ms: 200 ms in the api" in only.words
    assert "60 ms in the prefill, 900 ms decoding" in only.words
    cases = [
        ({"queue_ms": 300.0}, "kv_cache_full", "300 ms (75 % of the time to its first token)"),
        ({"prefill_ms": 300.0}, "slow_model", "its prompt took 300 ms"),
    ]
    for (timing, code, words), case in each(cases):
        with case:
            first, last = call(**{**GENERATED, "ttft_ms": 400.0, **timing, "preemptions": 2})
            assert (first.code, last.code) == (code, "call_late")
            assert words in first.words
            assert "2 preemptions" in last.words


PAGE = Path(__file__).parents[4] / "ops/docs/how-to/operations/why.md"


def test_every_diagnosis_is_explained() -> None:
    told = re.findall(r"^\| `([a-z_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(told) == sorted(CODES)
