"""Messages of deltas, and calls that ask for them."""

from jobs.calls.messages import (
    DELTAS,
    Call,
    ChoiceDelta,
    Delta,
    pack_call,
    pack_deltas,
    unpack_call,
    unpack_deltas,
)


def test_deltas_come_out_as_they_went_in() -> None:
    logprobs = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]
    deltas = [
        Delta("call_1", 0, [ChoiceDelta(0, "a\n~", [5], logprobs), ChoiceDelta(1, "ü", [6, 7])]),
        Delta("call_2", 3, [ChoiceDelta(0, finish="stop")]),
    ]
    packed = pack_deltas(deltas)
    assert packed.startswith(DELTAS)
    read = unpack_deltas(packed)
    assert [(one.id, one.number) for one in read] == [("call_1", 0), ("call_2", 3)]
    assert read[0].choices[0] == ChoiceDelta(0, "a\n~", [5], logprobs)
    assert read[1].choices[0].finish == "stop"


def test_a_call_says_that_it_streams() -> None:
    for stream in (True, False):
        call = Call("call_1", "{}/0", "acme", "text", 4, "api_1", trace="", stream=stream)
        assert unpack_call("call_1", b"0 0 api_1 {}/0", pack_call(call)).stream is stream
