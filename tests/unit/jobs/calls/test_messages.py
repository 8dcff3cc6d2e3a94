"""Calls as messages, between releases (workers and apis are not replaced at one moment), and the
records of calls that a filter wants."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import orjson

from jobs import clock, ids
from jobs.calls.messages import (
    DELTAS,
    FRAMED,
    Call,
    ChoiceDelta,
    Delta,
    Reply,
    pack_call,
    pack_deltas,
    pack_replies,
    unpack_call,
    unpack_deltas,
    unpack_replies,
)
from jobs.calls.records import CallFilter, CallRecord
from tests.support.cases import each

CALL = Call("call_1", "{}/0", "acme", "text", 7, "api_1", 2.0, "bulk", 10.0, 20.0)
HEAD = b"10 20 api_1 {}/0"
BEFORE = orjson.dumps(["acme", "text", 7, 2.0, "bulk"])
"""As the release before packs them, and reads them."""


def test_a_call_comes_with_its_adapter_and_as_the_releases_before_and_after_read_it() -> None:
    for call in (CALL, replace(CALL, trace="00-x"), replace(CALL, stream=True)):
        assert unpack_call(CALL.id, HEAD, pack_call(call)) == call
    assert unpack_call(CALL.id, HEAD, BEFORE) == CALL
    assert pack_call(CALL) == BEFORE
    later = orjson.dumps(["acme", "text", 7, 2.0, "bulk", "", False, 0, "", "", "more"])
    assert unpack_call(CALL.id, HEAD, later) == CALL
    adapted = replace(CALL, adapter="legal")
    packed = pack_call(adapted)
    assert unpack_call(CALL.id, HEAD, packed) == adapted
    assert orjson.loads(packed)[1] == {"adapted": "text"}


def test_a_cohort_goes_with_its_call_and_older_releases_pass_it_over() -> None:
    for (adapter, stream), case in each(product(["", "legal"], [True, False])):
        with case:
            call = replace(CALL, cohort="canary#r", adapter=adapter, stream=stream)
            assert unpack_call(CALL.id, HEAD, pack_call(call)) == call
            *fields, last = orjson.loads(pack_call(call))
            assert last == "canary#r"
            without = orjson.dumps(fields)  # an older release reads no more
            assert unpack_call(CALL.id, HEAD, without) == replace(call, cohort="")


# -- replies

NEW_API = f"api_1{FRAMED}"
REPLIES = [
    Reply("a", b'"line\\n"', None, 1, {"queue_ms": 0.5}),
    Reply("b", None, ("engine_error", "it\nbroke"), 2, {}),
    Reply("c", b"[1.50, {}]", None, 3, {}),
]
REPLIES_BEFORE = (
    b'[["a","line\\n",null,1,{"queue_ms":0.5}],'
    b'["b",null,["engine_error","it\\nbroke"],2,{}],["c",[1.50, {}],null,3,{}]]'
)
"""As the release before packs them, and reads them."""


def test_outputs_come_as_they_were_written_and_are_not_parsed() -> None:
    assert unpack_replies(pack_replies(REPLIES, NEW_API)) == [
        ("a", b'"line\\n"', None, 1, {"queue_ms": 0.5}),
        ("b", None, ["engine_error", "it\nbroke"], 2, {}),
        ("c", b"[1.50, {}]", None, 3, {}),
    ]
    no_json = Reply("a", b"{no JSON\n[", None, 1, {})
    [(_, output, *_)] = unpack_replies(pack_replies([no_json], NEW_API))
    assert output == no_json.output


def test_replies_are_read_by_the_release_before_and_read_as_it_writes_them() -> None:
    assert pack_replies(REPLIES, "api_1") == REPLIES_BEFORE
    assert unpack_replies(REPLIES_BEFORE) == [
        ("a", b'"line\\n"', None, 1, {"queue_ms": 0.5}),
        ("b", None, ["engine_error", "it\nbroke"], 2, {}),
        ("c", b"[1.5,{}]", None, 3, {}),
    ]
    assert unpack_replies(b'[["a",null,["worker_lost","died"],0,{}]]') == [
        ("a", None, ["worker_lost", "died"], 0, {})
    ]


def test_deltas_come_out_as_they_went_in() -> None:
    logprobs = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
    deltas = [
        Delta("call_1", 0, [ChoiceDelta(0, "a\n~", [5], logprobs), ChoiceDelta(1, "ü", [6, 7])]),
        Delta("call_2", 3, [ChoiceDelta(0, finish="stop")]),
        Delta("call_3", 0, [ChoiceDelta(0, prompt_logprobs=[None, {"5": {"rank": 1}}])]),
        Delta("call_4", 0, [ChoiceDelta(0, prompt_tokens=[5, 6]), ChoiceDelta(0, "a", [7])]),
    ]
    packed = pack_deltas(deltas)
    assert packed.startswith(DELTAS)
    read = unpack_deltas(packed)
    found = [(one.id, one.number) for one in read]
    assert found == [("call_1", 0), ("call_2", 3), ("call_3", 0), ("call_4", 0)]
    assert read[0].choices[0] == ChoiceDelta(0, "a\n~", [5], logprobs)
    assert read[1].choices[0].finish == "stop"
    assert read[2].choices[0].prompt_logprobs == deltas[2].choices[0].prompt_logprobs
    assert [one.prompt_tokens for one in read[3].choices] == [[5, 6], ()]


RECORD = CallRecord(
    ids.show("call", ids.new()), "acme", "minilm", "2", "standard", "succeeded", 0.0, 250, 5000, 7,
    "{}/16", {"total_ms": 100.0},
)  # fmt: skip
LATE = replace(RECORD, timing={"total_ms": 300.0})
NOW = clock.now()


def test_a_filter_wants_some_and_not_others_also_by_the_times_at_which_calls_were_made() -> None:
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
    assert not CallFilter(since=NOW + timedelta(minutes=1)).matches(RECORD)
    assert not CallFilter(until=NOW - timedelta(minutes=1)).matches(RECORD)
    assert not CallFilter(until=RECORD.made_at).matches(RECORD)
    assert CallFilter(since=RECORD.made_at).matches(RECORD)
    packed = RECORD.pack().replace(b',"worker":"","units":null', b"")
    assert b"worker" not in packed
    assert CallRecord.unpack(packed) == RECORD
