"""A run that left something untried doesn't pass, nor a stream that differs from its text."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ops.bench.chaos.clients.streams import StreamTally, judge
from ops.bench.chaos.clients.workload import CHAT, words
from ops.bench.chaos.coverage import DURABLE, gaps
from ops.bench.chaos.faults.targets import Proof
from ops.bench.chaos.record import History
from ops.bench.chaos.verify import Findings
from ops.bench.load.streams.reader import ReadStream, StreamRequest

KINDS = ("api_killed", "worker_killed")
FIRED: list[tuple[float, str, Proof]] = [
    (0.5, "api_killed", {"status": -9}),
    (1.0, "worker_killed", {"status": -9}),
]
FOUND = Findings(jobs=3, read_while_running=5)
READ = StreamTally(streams=2)


def described(
    fired: list[tuple[float, str, Proof]] = FIRED,
    durability: Mapping[str, str] = DURABLE,
    found: Findings = FOUND,
    streams: StreamTally = READ,
) -> list[str]:
    return list(gaps(KINDS, History(fired=fired), durability, found, streams))


def test_a_run_without_proofs_durability_jobs_reads_or_whole_streams_has_gaps() -> None:
    assert described(FIRED[:1]) == ["no fault of kind worker_killed fired"]
    assert described([*FIRED, (2.0, "api_killed", {})]) == ["api_killed at 2.0 s has no proof"]
    assert described() == []
    for name, value in DURABLE.items():
        assert described(durability={**DURABLE, name: "off"}) == [f"{name} is off, not {value}"]
    assert described(found=replace(FOUND, jobs=0)) == ["no job was acknowledged"]
    unread = described(found=replace(FOUND, read_while_running=0))
    assert unread == ["no result was read while its job ran"]
    failed = StreamTally(streams=1)
    failed.errors["unavailable"] = 1
    assert described(streams=failed) == ["none of 1 streams came to its end"]


TEXT = words("s", 4)
WORDS = [word if n == 0 else f" {word}" for n, word in enumerate(TEXT.split())]


def stream(*indices: int, ended: bool = True, error: str = "", billed: int = 4) -> ReadStream:
    read = ReadStream(StreamRequest(CHAT, {}), call_id="call_1", connections=2)
    for place, index in enumerate(indices):
        data = {"choice": 0, "index": place, "tokens": [index], "text": WORDS[index]}
        read.take("tokens", data)
    if ended:
        read.take("done", {"usage": {"prompt_tokens": 4, "completion_tokens": billed}})
    read.error = error
    return read


def judged(found: ReadStream, redis_lost: bool = True) -> tuple[StreamTally, list[str]]:
    tally, troubles = StreamTally(), list[str]()
    judge(found, TEXT, redis_lost, tally, troubles)
    return tally, troubles


def test_a_stream_that_differs_or_does_not_say_why_it_ended_is_wrong() -> None:
    tally, troubles = judged(stream(0, 1, 2, 3))
    assert (tally.streams, tally.resumed, tally.tokens, tally.wrong) == (1, 1, 4, 0)
    assert troubles == []
    for found in (
        stream(0, 1, 2),
        stream(0, 1, 3, 2),
        stream(0, 1, 1, 2, 3),
        stream(0, 1, 2, 3, billed=8),
        stream(0, 2, ended=False, error="unavailable: Redis lost it"),
        stream(0, 1, ended=False, error="stream_broken: a delta is missing"),
        stream(0, 1, ended=False),
    ):
        tally, troubles = judged(found)
        assert tally.wrong == len(troubles) == 1, found


def test_an_error_that_blames_redis_is_counted_and_wrong_while_redis_lost_nothing() -> None:
    tally, troubles = judged(stream(0, 1, ended=False, error="unavailable: Redis lost it"))
    assert (tally.errors, tally.wrong, troubles) == ({"unavailable": 1}, 0, [])
    assert tally.lost_with_redis == 1
    for code, wrong in {"unavailable": 1, "404": 1, "worker_lost": 0, "deadline_passed": 1}.items():
        tally, troubles = judged(stream(0, 1, ended=False, error=f"{code}: …"), redis_lost=False)
        assert (tally.wrong, len(troubles), tally.lost_with_redis) == (wrong, wrong, 0), code


@pytest.mark.parametrize(("index", "lost", "repeated"), [(2, 1, 0), (0, 0, 1)])
def test_tokens_are_counted_by_their_places(index: int, lost: int, repeated: int) -> None:
    found = stream(0, ended=False, error="unavailable: Redis lost it")
    found.take("tokens", {"choice": 0, "index": index, "tokens": [1], "text": ""})
    tally, troubles = judged(found)
    assert (tally.lost, tally.repeated, len(troubles)) == (lost, repeated, 1)
