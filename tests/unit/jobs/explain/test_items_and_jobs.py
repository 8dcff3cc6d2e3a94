"""Where the time of an item or a call went, why a job stands where it does, by what was kept of
them, and the page that explains each diagnosis."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from jobs.calls.records import CallRecord
from jobs.explain.calls import explain_call
from jobs.explain.diagnosis import CODES, Diagnosis
from jobs.explain.items import EarlierJobs, explain_item
from jobs.explain.jobs import explain_job
from jobs.explain.timing import ItemTiming
from jobs.store.jobs.detail import ItemRow
from jobs.store.jobs.read import JobRow
from jobs.store.monitoring.diagnostics import SliceCounts
from tests.support.cases import each
from tests.support.stores.rows import made

T = datetime(2026, 1, 1, tzinfo=UTC)
ALONE = EarlierJobs(0, 0)
JOB: dict[str, Any] = {
    "id": UUID(int=1), "state": "running", "created_at": T, "queued_at": None, "started_at": T,
    "finished_at": None, "read_at": T + timedelta(seconds=50), "total": 10, "failed": 0,
    "transfer_error": None,
}  # fmt: skip
DONE: dict[str, Any] = {
    "created_at": T, "queued_at": None, "read_at": T + timedelta(seconds=50),
    "claimed_at": T + timedelta(seconds=1), "started_at": T + timedelta(seconds=3),
    "slice_finished_at": T + timedelta(seconds=10), "wait_ms": 1500.0, "batch_ms": 5.0,
    "engine_ms": 500.0, "outcome": "succeeded", "failures": None, "last_failure": None,
    "backoff_s": None, "slice_state": "done", "suspect": False, "deaths": 0, "worker": 3,
}  # fmt: skip
WAITS = DONE | dict.fromkeys(
    ("claimed_at", "started_at", "slice_finished_at", "wait_ms", "batch_ms", "engine_ms", "outcome")
)  # fmt: skip
WAITS |= {"slice_state": "ready"}
SLICES: dict[str, Any] = {
    "ready": 0, "postponed": 0, "leased": 1, "held": 0, "suspect": 0, "retrying": 0, "deaths": 0,
    "first_claimed_at": T, "next_s": None, "quiet_s": 1.0,
}  # fmt: skip
Values = dict[str, Any]


def timing_of(row: Values) -> ItemTiming:
    return ItemTiming.from_row(made(ItemRow, row))


def explained_item(job: Values, row: Values, before: EarlierJobs) -> list[Diagnosis]:
    return explain_item(made(JobRow, job), made(ItemRow, row), before)


def explained_job(
    job: Values, slices: Values, errors: dict[str, int], before: EarlierJobs
) -> list[Diagnosis]:
    return explain_job(made(JobRow, job), made(SliceCounts, slices), errors, before)


def test_the_parts_of_an_items_time_are_all_of_it_but_for_what_is_not_known() -> None:
    timing = timing_of(DONE)
    assert timing == ItemTiming(
        waiting_ms=1000.0, preprocess_ms=500.0, queue_ms=1495.0, batch_ms=5.0, engine_ms=500.0,
        record_ms=6500.0, total_ms=10_000.0, wait_ms=1500.0,
    )  # fmt: skip
    parts = timing.as_json()
    whole = parts.pop("total_ms")
    parts.pop("wait_ms")
    assert sum(part for part in parts.values() if part) == whole
    timing = timing_of(DONE | {"claimed_at": T + timedelta(seconds=8)})
    assert (timing.waiting_ms, timing.preprocess_ms) == (1500.0, None)
    early = timing_of(DONE | {"slice_finished_at": T, "started_at": T})
    assert all(part is None or part >= 0 for part in early.as_json().values())
    assert timing_of(WAITS) == ItemTiming(waiting_ms=50_000.0)
    ended = WAITS | {"outcome": "cancelled", "slice_finished_at": T + timedelta(seconds=2)}
    assert timing_of(ended) == ItemTiming(waiting_ms=2_000.0)


def test_what_came_before_is_told_as_far_as_one_may_know() -> None:
    cases = [
        (ALONE, "no earlier job for this model before it"),
        (EarlierJobs(1, 0), "1 earlier job before it (1 of its own tenant)"),
        (
            EarlierJobs(1, 3),
            "4 earlier jobs before it (1 of its own tenant and 3 of other tenants)",
        ),
        (EarlierJobs(2, None), "2 earlier jobs of its own tenant and other work before it"),
        (EarlierJobs(0, None), "no earlier job of its own tenant and other work before it"),
    ]
    for (before, words), case in each(cases):
        with case:
            [only] = explained_item(JOB, WAITS, before)
            assert only.code == "item_waits"
            assert f"it has waited 50 s for a device: {words}" in only.words


def test_an_open_item_says_what_it_waits_for() -> None:
    cases = [
        ({"state": "paused"}, {}, "job_held", "its job is paused"),
        ({}, {"slice_state": "leased"}, "item_waits", "worker 3 claimed it 50 s after"),
        ({}, {"suspect": True, "deaths": 2}, "suspect_slices", "(2 deaths)"),
        ({}, {"failures": 2, "last_failure": '{"code": "transient"}', "backoff_s": 1.5},
         "item_retried", "failed 2 times, last as transient"),
    ]  # fmt: skip
    for (job, row, code, words), case in each(cases):
        with case:
            first = explained_item(JOB | job, WAITS | row, ALONE)[0]
            assert first.code == code
            assert words in first.words


def test_an_item_that_ended_says_what_took_most_of_its_time() -> None:
    cases = [
        ({}, "recording", "it spent 6.5 s of 10 s (65 %) waiting for the rest of its slice"),
        ({"claimed_at": T + timedelta(seconds=20), "started_at": T + timedelta(seconds=22),
          "slice_finished_at": T + timedelta(seconds=23)}, "item_waits", "for a device: no"),
        ({"wait_ms": 1900.0, "slice_finished_at": T + timedelta(seconds=3.5)},
         "waiting_for_device", "in its lane"),
        ({"engine_ms": 9000.0, "slice_finished_at": T + timedelta(seconds=12)},
         "slow_model", "on the device"),
    ]  # fmt: skip
    for (row, code, words), case in each(cases):
        with case:
            first = explained_item(JOB, DONE | row, ALONE)[0]
            assert first.code == code
            assert words in first.words
    quick = DONE | {
        "claimed_at": T, "started_at": T, "wait_ms": 1.0, "engine_ms": 3.0, "slice_finished_at": T,
    }  # fmt: skip
    [only] = explained_item(JOB, quick, ALONE)
    assert "no stage of it long" in only.words


def test_a_job_says_where_it_stands() -> None:
    cases = [
        ({"state": "paused"}, {"leased": 0, "held": 3}, "job_held", "it is paused"),
        ({"state": "validating", "transfer_error": "no such key"}, {}, "job_held", "no such key"),
        ({}, {"suspect": 2, "deaths": 1}, "suspect_slices", "2 slices of it were leased"),
        ({}, {"postponed": 2, "next_s": 4.0}, "item_retried", "2 slices wait to be retried"),
        ({}, {}, "job_runs", "1 slice of it leased by workers"),
        ({}, {"leased": 0, "ready": 4, "quiet_s": None}, "job_waits", "for 50 s: no earlier job"),
        ({"state": "completed", "finished_at": T + timedelta(seconds=7),
          "started_at": T + timedelta(seconds=2)}, {}, "job_ended",
         "it ended as completed after 7 s: 2 s until the first claim, then 5 s"),
        ({"state": "cancelled", "finished_at": T + timedelta(seconds=7)},
         {"first_claimed_at": None}, "job_ended", "it ended as cancelled after 7 s"),
    ]  # fmt: skip
    for (job, slices, code, words), case in each(cases):
        with case:
            first = explained_job(JOB | job, SLICES | slices, {}, ALONE)[0]
            assert first.code == code
            assert words in first.words
            assert slices.get("first_claimed_at", T) or "claimed" not in first.words


def test_what_items_failed_with_is_told_and_that_none_ends_is_worth_a_warning() -> None:
    for quiet_s, severity in ((29.0, "info"), (31.0, "warning")):
        slices = SLICES | {"quiet_s": quiet_s}
        [runs] = explained_job(JOB, slices, {}, ALONE)
        [waits] = explained_job(JOB, slices | {"leased": 0, "ready": 1}, {}, ALONE)
        assert (runs.severity, waits.severity) == (severity, severity)
    failed = JOB | {"failed": 4}
    first = explained_job(failed, SLICES, {"engine_error": 3, "timeout": 1}, ALONE)[0]
    assert first.code == "model_fails"
    assert "4 items of 10 failed (40 %), most as engine_error" in first.words


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
