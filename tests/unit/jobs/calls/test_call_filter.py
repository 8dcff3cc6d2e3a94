"""Which calls a filter wants, by their records."""

from dataclasses import replace
from datetime import timedelta

from jobs import clock, ids
from jobs.calls.records import CallFilter, CallRecord
from tests.support.cases import each

RECORD = CallRecord(
    ids.show("call", ids.new()), "acme", "minilm", "2", "standard", "succeeded", 0.0, 250, 5000, 7,
    "{}/16", {"total_ms": 100.0},
)  # fmt: skip
LATE = replace(RECORD, timing={"total_ms": 300.0})
NOW = clock.now()


def test_a_filter_wants_some_and_not_others() -> None:
    cases = [
        ({}, RECORD, None),
        ({"tenant": "acme"}, RECORD, replace(RECORD, tenant="acme2")),
        ({"model": "minilm"}, RECORD, replace(RECORD, model="minilm2")),
        ({"model": "minilm@2"}, RECORD, replace(RECORD, version="1")),
        ({"outcome": "succeeded"}, RECORD, replace(RECORD, outcome="cancelled")),
        ({"outcome": "overloaded"}, replace(RECORD, outcome="overloaded"), RECORD),
        ({"outcome": "refused"}, replace(RECORD, outcome="no_worker"), RECORD),
        ({"outcome": "failed"}, replace(RECORD, outcome="engine_error"), RECORD),
        (
            {"outcome": "failed"},
            replace(RECORD, outcome="too_long"),
            replace(RECORD, outcome="predicted_wait"),
        ),
        ({"outcome": "late"}, LATE, RECORD),
        ({"outcome": "late"}, replace(RECORD, outcome="deadline_passed"), RECORD),
        ({"outcome": "late"}, LATE, replace(LATE, timing={"total_ms": 300.0, "ttft_ms": 20.0})),
        ({"slower_ms": 200.0}, LATE, RECORD),
        ({"since": NOW - timedelta(minutes=1)}, RECORD, None),
        ({"until": NOW + timedelta(minutes=1)}, RECORD, None),
        ({"text": RECORD.id[-8:]}, RECORD, replace(RECORD, id=ids.show("call", ids.new()))),
    ]
    for (wanted, yes, no), case in each(cases):
        with case:
            assert CallFilter(**wanted).matches(yes)
            if no:
                assert not CallFilter(**wanted).matches(no)


def test_times_are_those_at_which_calls_were_made() -> None:
    assert not CallFilter(since=NOW + timedelta(minutes=1)).matches(RECORD)
    assert not CallFilter(until=NOW - timedelta(minutes=1)).matches(RECORD)
    assert not CallFilter(until=RECORD.made_at).matches(RECORD)
    assert CallFilter(since=RECORD.made_at).matches(RECORD)


def test_a_record_of_the_release_before_has_no_worker() -> None:
    packed = RECORD.pack().replace(b',"worker":"","units":null', b"")
    assert b"worker" not in packed
    assert CallRecord.unpack(packed) == RECORD
