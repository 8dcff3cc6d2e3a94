"""Log probabilities of requests that go on, from the log of a call and from a checkpoint: parts of
characters keep their bytes."""

from typing import Any

import orjson

from jobs.calls.messages import ChoiceDelta, Delta, pack_deltas, unpack_deltas
from jobs.calls.streams.log import CallLog
from jobs.store.queue.checkpoints import ChoiceProgress, Progress
from tests.unit.workers.generation.made import sequence
from workers.engines.generator import TokenLogprob
from workers.generation.calls import resumption
from workers.generation.completion import logprob_objects
from workers.generation.items import checkpoints
from workers.generation.requests import Sequenced

UMLAUT = "ä".encode()
SEEN = [
    TokenLogprob(7, "", -0.5, (TokenLogprob(8, "\ufffd", -1.0, (), b"\xc5"),), UMLAUT[:1]),
    TokenLogprob(9, "ä", -0.25, (TokenLogprob(10, "x", -2.0),), UMLAUT[1:]),
    TokenLogprob(11, "\0", -0.125),
]


def test_a_call_goes_on_with_the_log_probabilities_of_its_log() -> None:
    shown = logprob_objects(SEEN)
    assert [one["bytes"] for one in shown] == [[0xC3], [0xA4], [0]]
    assert shown[0]["top_logprobs"] == [{"token": "\ufffd", "logprob": -1.0, "bytes": [0xC5]}]
    delta = Delta("a", 0, [ChoiceDelta(0, "ä\ufffd", [7, 9, 11], shown)], (1, 0))
    one = sequence()
    resumption.resume(one.request, CallLog(unpack_deltas(pack_deltas([delta]))))
    assert one.emitted == [7, 9, 11]
    assert logprob_objects(one.logprobs) == shown


def piece_of(one: Sequenced) -> str:
    """Returns the log probabilities of its first checkpoint, as JSON."""
    one.request.owner = type("Slice", (), {"lease": type("Lease", (), {"job_id": 0, "tenant": ""})})
    one.request.admitted_s = 1.0
    [piece] = checkpoints.unsaved([one]).pieces
    return piece.logprobs or "[]"


def test_an_item_goes_on_with_those_of_its_checkpoint_which_other_releases_read() -> None:
    before, one = sequence(call=False), sequence(call=False)
    before.emitted, before.logprobs = [7, 9, 11], list(SEEN)
    rows: list[Any] = orjson.loads(piece_of(before))
    assert [len(row) for row in rows] == [5, 5, 4]
    assert rows[1][3] == [[10, "x", -2.0]]
    one.request.place = 0, None, 0
    choice = ChoiceProgress(0, [7, 9, 11], "ä", rows)
    checkpoints.resume(one.request, Progress([choice]))
    assert logprob_objects(one.logprobs) == logprob_objects(SEEN)
    older = TokenLogprob(10, "x", -2.0, (TokenLogprob(11, "y", -3.0),))
    assert list(checkpoints._read([[10, "x", -2.0, [[11, "y", -3.0]]]])) == [older]  # noqa: SLF001
