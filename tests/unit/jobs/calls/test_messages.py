"""Calls as messages, between releases: workers and apis are not replaced at one moment."""

import orjson

from jobs.calls.messages import Call, pack_call, unpack_call

CALL = Call("call_1", "{}/0", "acme", "text", 7, "api_1", 2.0, "bulk", 10.0, 20.0)
HEAD = b"10 20 api_1 {}/0"
BEFORE = orjson.dumps(["acme", "text", 7, 2.0, "bulk"])
"""As the release before packs them, and reads them."""


def test_a_call_comes_as_it_was_sent() -> None:
    assert unpack_call(CALL.id, HEAD, pack_call(CALL)) == CALL


def test_a_trace_goes_with_it() -> None:
    traced = Call("call_1", "{}/0", "acme", "text", 7, "api_1", 2.0, "bulk", 10.0, 20.0, "00-x")
    assert unpack_call(CALL.id, HEAD, pack_call(traced)) == traced


def test_a_message_of_the_release_before_is_read() -> None:
    assert unpack_call(CALL.id, HEAD, BEFORE) == CALL


def test_the_release_before_reads_what_is_not_traced() -> None:
    assert pack_call(CALL) == BEFORE


def test_what_a_later_release_adds_is_passed_over() -> None:
    later = orjson.dumps(["acme", "text", 7, 2.0, "bulk", "", "more"])
    assert unpack_call(CALL.id, HEAD, later) == CALL
