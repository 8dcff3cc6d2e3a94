"""Calls that go on at another host: their clients see one stream, and no token twice."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import redis

from jobs.calls.messages import ChoiceDelta, Delta
from jobs.calls.redis import declare_dead
from jobs.settings import Settings
from tests.integration.workers.generation.host_bench import MODEL, Bench, Echo
from tests.integration.workers.generation.logged_host import WORKER, command
from tests.support.wait import PATIENCE_S, eventually
from workers.engines.generator import Capacity

Hosted = Callable[..., Bench]
WORDS = 300
TEXT = " ".join(f"w{n}" for n in range(WORDS))
PROMPT_IDS = [crc32(word.encode()) % (1 << 31) for word in TEXT.split()]


@contextmanager
def doomed(settings: Settings, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A host in a process of its own."""
    with subprocess.Popen(command(settings.redis_url, tmp_path / "log")) as process:
        try:
            yield process
        finally:
            process.kill()


def choices(deltas: list[Delta], id: str) -> list[ChoiceDelta]:
    return [choice for delta in deltas if delta.id == id for choice in delta.choices]


def joined(deltas: list[Delta], id: str, index: int = 0) -> str:
    return "".join(one.text for one in choices(deltas, id) if one.index == index)


def emitted(deltas: list[Delta], id: str) -> list[int]:
    its = (delta for delta in deltas if delta.id == id)
    return [token for delta in its for c in delta.choices for token in c.tokens]


def whole(deltas: list[Delta], id: str) -> bool:
    numbers = [delta.number for delta in deltas if delta.id == id]
    return numbers[0] == 0 and all(b - a == 1 for a, b in pairwise(numbers))


CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "choices": {"n": 2, "seed": 7},
    "stopped": {"stop": ["w60 w61", "w70"]},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "named": {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True},
    "length": {"max_tokens": 50, "min_tokens": 50},
    "echoed": {"prompt": TEXT, "echo": True, "max_tokens": WORDS},
    "scored": {
        "prompt": TEXT,
        "echo": True,
        "logprobs": 1,
        "prompt_logprobs": 1,
        "max_tokens": WORDS,
    },
    "ids": {"n": 2, "return_token_ids": True, "logprobs": True},
    "ids_stopped": {"prompt": TEXT, "return_token_ids": True, "max_tokens": 70, "stop": ["w60"]},
    "whole_ids": {"prompt": TEXT, "return_token_ids": True, "max_tokens": 90, "stream": False},
    "whole": {"stream": False},
}


def put(bench: Bench) -> None:
    for id, fields in CALLS.items():
        bench.call(id, TEXT, **{"stream": True, **fields})


def put_begun(bench: Bench) -> None:
    """Puts calls, and starts their host, until they have some of their tokens."""
    put(bench)
    bench.start()
    bench.begun(deltas=61)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_calls_go_on_where_their_worker_left_them(
    hosted: Hosted, settings: Settings, tmp_path: Path, number: signal.Signals
) -> None:
    bench, log = hosted(), tmp_path / "log"
    put(bench)
    with doomed(settings, tmp_path) as process:
        bench.begun(deltas=61)
        os.kill(process.pid, number)
        bench.drained()
        before = {id: emitted(bench.deltas, id) for id in CALLS}
        declare_dead(bench.lanes._redis, [MODEL.key], WORKER)  # noqa: SLF001
        bench.start()
        bench.ended(CALLS)
        if number == signal.SIGSTOP:
            logged = log.stat().st_size
            os.kill(process.pid, signal.SIGCONT)  # a zombie sends what it has
            eventually(lambda: log.stat().st_size > logged)
            bench.drained()
    check(bench, before)


def check(bench: Bench, before: dict[str, list[int]]) -> None:
    outputs = {id: output for id, (output, _, _) in bench.replies.items()}
    assert {id: error for id, (_, error, _) in bench.replies.items() if error} == {}
    for id in CALLS.keys() - {"whole", "echoed", "scored", "ids_stopped", "whole_ids"}:
        assert whole(bench.deltas, id)
        for choice in outputs[id]["choices"]:
            text = joined(bench.deltas, id, choice["index"])
            assert choice["message"]["content"] == text
            assert TEXT.startswith(text)
    echoed = outputs["echoed"]["choices"][0]["text"]
    assert echoed == joined(bench.deltas, "echoed") == TEXT + TEXT
    for choice in outputs["scored"]["choices"]:
        assert choice["text"] == joined(bench.deltas, "scored", choice["index"]) == TEXT + TEXT
        seen, listed = choice["logprobs"], choice["prompt_logprobs"]
        assert "".join(seen["tokens"]) == TEXT + TEXT
        assert seen["token_logprobs"] == [None, *[0.0] * (2 * WORDS - 1)]
        assert seen["text_offset"][WORDS] == len(TEXT)
        assert listed[0] is None
        assert (
            "".join(its["decoded_token"] for one in listed[1:] for its in one.values()) == TEXT[2:]
        )
    for one in outputs["named"]["choices"][0]["logprobs"]["content"]:
        assert {it["token"][:9] for it in (one, *one["top_logprobs"])} == {"token_id:"}
    assert outputs["ids"]["prompt_token_ids"] == PROMPT_IDS
    for id in ("ids", "ids_stopped", "whole_ids"):
        for choice in outputs[id]["choices"]:
            parts = [one for one in choices(bench.deltas, id) if one.index == choice["index"]]
            if id != "ids":
                assert choice["prompt_token_ids"] == PROMPT_IDS
            if id == "whole_ids":
                assert len(choice["token_ids"]) == 90
                continue
            assert [one.prompt_tokens for one in parts if one.prompt_tokens] == [PROMPT_IDS]
            assert choice["token_ids"] == [token for one in parts for token in one.tokens]
    openings = [one for one in choices(bench.deltas, "scored") if one.prompt_logprobs]
    assert [(one.index, len(one.logprobs)) for one in openings] == [(0, WORDS)]
    assert outputs["whole"]["choices"][0]["message"]["content"] == TEXT
    assert joined(bench.deltas, "stopped") == TEXT.partition(" w60")[0] + " "
    assert len(emitted(bench.deltas, "length")) == 50
    logprobs = outputs["logprobs"]["choices"][0]["logprobs"]["content"]
    assert [one["token"].strip() for one in logprobs] == TEXT.split()
    assert logprobs[-1]["top_logprobs"][0]["token"] == logprobs[-1]["token"]
    for id, tokens in before.items():
        assert emitted(bench.deltas, id)[: len(tokens)] == tokens
    resumed = [one for one in bench.engine.added if one.emitted]
    assert resumed
    seeds = {one.sampling.seed for one in bench.engine.added if one.id.startswith("choices/")}
    assert seeds <= {7, 8}
    usage = outputs["choices"]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (WORDS, 2 * WORDS)


def test_a_host_that_stops_leaves_its_calls_to_another_without_losing_a_token(
    hosted: Hosted,
) -> None:
    first, second = hosted(step_ms=50.0), hosted(worker="worker-2")
    put_begun(first)
    first.host.stop()
    first.drained()
    assert first.replies.keys() < CALLS.keys()
    before = {id: emitted(first.deltas, id) for id in CALLS}
    second.start()
    second.deltas, second.replies = first.deltas, first.replies
    second.ended(CALLS)
    check(second, before)
    again = [one for one in second.engine.added if one.id.startswith("plain/")]
    assert [len(one.emitted) for one in again] == [len(before["plain"])] * len(again)


def test_a_host_that_is_drained_lives_on_and_leaves_its_calls_to_another(hosted: Hosted) -> None:
    first, second = hosted(step_ms=50.0), hosted(worker="worker-2")
    put_begun(first)
    first.host.drain()
    first.host.announce(ready=False)
    eventually(lambda: not first.host._calls.requests)  # noqa: SLF001
    second.start()
    first.ended(CALLS)
    second.deltas, second.replies = first.deltas, first.replies
    check(second, {})
    first.call("later", "one two")
    assert second.texts("later") == ["one two"]
    assert [one for one in first.engine.added if one.id.startswith("later/")] == []
    second.host.stop()
    first.lanes.announce("worker-3", 60)
    first.call("last", "three")
    first.lanes.announce("worker-3", 60, ready=False)
    first.host.announce(ready=False)  # there is nobody to leave calls to any more
    assert first.texts("last") == ["three"]


class SlowToRestart(Echo):
    """Starts again once it is told to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.may_restart = threading.Event()

    def restart(self) -> None:
        self.may_restart.wait(PATIENCE_S)
        super().restart()


def test_calls_go_on_at_another_host_while_an_engine_that_died_starts_again(hosted: Hosted) -> None:
    first = hosted(step_ms=50.0, kind=SlowToRestart)
    second = hosted(step_ms=2.0, worker="worker-2")
    put_begun(first)
    first.engine.deaths = 1
    second.start()
    try:
        first.ended(CALLS)
        second.deltas, second.replies = first.deltas, first.replies
        check(second, {})
        assert not first.engine.restarts
        assert not first.host.call_room()
    finally:
        first.engine.may_restart.set()
    eventually(first.host.call_room)


def test_a_host_without_another_one_ends_its_calls_first(hosted: Hosted) -> None:
    bench = hosted(step_ms=2.0)
    bench.call("a", TEXT, stream=True)
    bench.start()
    bench.begun()
    bench.host.stop()
    assert bench.texts("a") == [TEXT]


def test_a_call_whose_choices_have_all_ended_ends_at_once(
    hosted: Hosted, redis_client: "redis.Redis"
) -> None:
    bench = hosted()
    call = bench.call("a", "one two", stream=True)
    bench.host._puller.end = lambda ends: None  # type: ignore[method-assign] # noqa: SLF001
    bench.start()
    eventually(lambda: bench.read() and any(c.finish for d in bench.deltas for c in d.choices))
    bench.host.stop()
    declare_dead(redis_client, [MODEL.key], "worker-1")
    other = hosted(worker="worker-2")
    other.start()
    assert other.texts(call.id) == ["one two"]
    assert other.engine.added == []
    *_, timing = other.replies["a"]
    assert timing["deltas"] == len(bench.deltas)


class CannotResume(Echo):
    """Can't go on with a text that has begun."""

    @property
    def capacity(self) -> Capacity:
        return replace(super().capacity, resumes=False, takes_over=False)


def test_a_stream_that_cannot_go_on_ends_with_an_error_and_its_tokens_billed(
    hosted: Hosted, settings: Settings, tmp_path: Path
) -> None:
    bench = hosted(kind=CannotResume)
    bench.call("begun", TEXT, stream=True, min_tokens=4000)
    with doomed(settings, tmp_path) as process:
        bench.begun(deltas=21)
        process.kill()
    bench.drained()
    declare_dead(bench.lanes._redis, [MODEL.key], WORKER)  # noqa: SLF001
    bench.start()
    _, error, _ = bench.reply("begun")
    assert error[0] == "stream_broken"
    [used] = bench.lanes.usage(unfinished=True)
    assert used.output_tokens == len(emitted(bench.deltas, "begun"))
