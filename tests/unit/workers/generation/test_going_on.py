"""Log probabilities of requests that go on, from the log of a call and from a checkpoint: parts of
characters keep their bytes. Workers of earlier releases, which run beside this one while a fleet is
upgraded, read both: their readers are here as they were."""

from dataclasses import dataclass, replace
from typing import Any

import orjson

from jobs.calls.messages import ChoiceDelta, Delta, pack_deltas, unpack_deltas
from jobs.calls.streams.log import CallLog
from jobs.models.inputs.generation import GenerationRequest
from jobs.store.queue.checkpoints import ChoiceProgress, Piece, Progress
from tests.unit.workers.generation.made import sequence
from workers.engines.generator import TokenLogprob
from workers.generation.calls import resumption
from workers.generation.completion import logprob_objects
from workers.generation.items import checkpoints
from workers.generation.requests import Sequenced

PLAIN = GenerationRequest()
UMLAUT = "ä".encode()
SEEN = [
    TokenLogprob(7, "", -0.5, (TokenLogprob(8, "\ufffd", -1.0, (), b"\xc5"),), UMLAUT[:1]),
    TokenLogprob(9, "ä", -0.25, (TokenLogprob(10, "x", -2.0),), UMLAUT[1:]),
    TokenLogprob(11, "\0", -0.125),
]


def test_a_call_goes_on_with_the_log_probabilities_of_its_log() -> None:
    shown = logprob_objects(SEEN, PLAIN)
    assert [one["bytes"] for one in shown] == [[0xC3], [0xA4], [0]]
    assert shown[0]["top_logprobs"] == [{"token": "\ufffd", "logprob": -1.0, "bytes": [0xC5]}]
    delta = Delta("a", 0, [ChoiceDelta(0, "ä\ufffd", [7, 9, 11], shown)], (1, 0))
    one = sequence()
    resumption.resume(one.request, CallLog(unpack_deltas(pack_deltas([delta]))))
    assert one.emitted == [7, 9, 11]
    assert logprob_objects(one.logprobs, PLAIN) == shown


@dataclass
class OlderDelta:
    """`ChoiceDelta` of release 0.2.0."""

    index: int
    text: str = ""
    tokens: Any = ()
    logprobs: Any = ()
    finish: str | None = None
    stopped_by: str | None = None


def read_by_older(packed: bytes) -> list[tuple[OlderDelta, list[Any]]]:
    """Returns the parts of a message with their tokens, as `unpack_deltas` and `resumption` of
    release 0.2.0 read them."""
    parts = [
        OlderDelta(*choice)
        for _, _, choices, *_ in orjson.loads(packed.removeprefix(b"~"))
        for choice in choices
    ]

    def text(one: Any) -> str:
        return bytes(one["bytes"]).decode()

    return [
        (
            part,
            [
                (token, text(one), one["logprob"], [text(likely) for likely in one["top_logprobs"]])
                for token, one in zip(part.tokens, part.logprobs, strict=False)
            ],
        )
        for part in parts
    ]


def test_a_log_is_read_by_the_release_before() -> None:
    emoji = "🙂".encode()
    split = [
        TokenLogprob(
            n, "🙂" if n == 3 else "", -1.0, (TokenLogprob(n, "\ufffd", -1.0, (), byte),), byte
        )
        for n, byte in enumerate(emoji[n : n + 1] for n in range(4))
    ]
    listed = [None, {"5": {"logprob": -1.0, "rank": 1, "decoded_token": "x"}}]
    opening = ChoiceDelta(0, "ab", prompt_logprobs=listed)
    begun = ChoiceDelta(0, "🙂", [0, 1, 2, 3], logprob_objects(split, PLAIN))
    packed = pack_deltas([Delta("a", 0, [opening, begun], (1, 0))])
    (first, none), (_, tokens) = read_by_older(packed)
    assert (first.text, first.tokens, first.finish, none) == ("ab", [], None, [])
    assert [text for _, text, *_ in tokens] == ["", "", "", "🙂"]
    assert unpack_deltas(packed)[0].choices == (opening_as_read(opening), begun)
    assert [one["bytes"] for one in begun.logprobs] == [[byte] for byte in emoji]


def opening_as_read(opening: ChoiceDelta) -> ChoiceDelta:
    return replace(opening, tokens=[], logprobs=[])


def piece_of(one: Sequenced) -> Piece:
    """Returns its first checkpoint."""
    one.request.owner = type("Slice", (), {"lease": type("Lease", (), {"job_id": 0, "tenant": ""})})
    one.request.admitted_s = 1.0
    [piece] = checkpoints.unsaved([one]).pieces
    return piece


def test_an_item_goes_on_with_those_of_its_checkpoint_which_other_releases_read() -> None:
    before, one = sequence(call=False), sequence(call=False)
    before.emitted, before.logprobs = [7, 9, 11], list(SEEN)
    listed = [None, {"5": {"logprob": -1.0, "rank": 1, "decoded_token": "x"}}]
    before.opening = ChoiceDelta(0, prompt_logprobs=listed)
    piece = piece_of(before)
    rows = orjson.loads(piece.logprobs or "")
    older = [  # as release 0.2.0 reads rows
        (text, logprob, [(its, value) for _, its, value in top]) for _, text, logprob, top in rows
    ]
    assert older[0] == ("", -0.5, [("\ufffd", -1.0)])
    one.request.place = 0, None, 0
    asked = replace(one.prompt.request, prompt_logprobs=1)
    one.prompt = replace(one.prompt, request=asked)
    choice = ChoiceProgress(0, [7, 9, 11], "ä", rows)
    checkpoints.resume(one.request, Progress([choice]))
    assert logprob_objects(one.logprobs, PLAIN) == logprob_objects(SEEN, PLAIN)
    assert one.opening == replace(before.opening, logprobs=[])


def test_an_item_goes_on_from_a_checkpoint_of_the_release_before() -> None:
    one = sequence(call=False)
    one.request.place = 0, None, 0
    choice = ChoiceProgress(0, [10], "x", [[10, "x", -2.0, [[11, "y", -3.0]]]])
    checkpoints.resume(one.request, Progress([choice]))
    assert one.logprobs == [TokenLogprob(10, "x", -2.0, (TokenLogprob(11, "y", -3.0),))]
