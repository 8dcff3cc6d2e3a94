"""A step that hangs, on a whole platform: it costs the engine's process alone."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ops.bench.probes.engines import engine_pids
from ops.supervisor.platform import Platform
from tests.support.children import pid_of
from tests.support.clients import events
from tests.support.generation import tiny_llama
from tests.support.platforms import Platforms, spec, supervised
from tests.support.wait import PATIENCE_S, gone

_TOKENS = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.save(tmp_path_factory.mktemp("tiny"), max_position_embeddings=2048)


@pytest.fixture(scope="module")
def platform(platforms: Platforms, folder: Path) -> Iterator[Platform]:
    limits = {"max_launch_s": 10, "max_item_bytes": 1_000_000}
    with platforms.running(spec(tiny_llama.entry(folder, limits=limits))) as started:
        yield started


def test_a_hanging_step_ends_the_engine_alone_and_streams_go_on_exactly(
    platform: Platform, folder: Path
) -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    nul = str(vocabulary["\u0100"])  # which no answer may hold
    length = {"max_tokens": _TOKENS, "min_tokens": _TOKENS}
    asked = {"prompt": "The cat sat", "temperature": 0, "logit_bias": {nul: -100}, **length}
    body = {"model": "tiny", "input": asked, "timeout_ms": 300_000}
    url = f"{platform.url}/infer"
    whole = httpx.post(url, json=body, timeout=PATIENCE_S).raise_for_status()
    worker = pid_of(platform)
    [engine] = engine_pids(worker)
    pieces = list[str]()
    body |= {"stream": True, "first_token_ms": 300_000, "idle_ms": 300_000}
    with supervised(platform), httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as stream:
        assert stream.status_code == 200
        for event in events(stream.iter_lines()):
            pieces.append(event.data.get("text", ""))
            if len(pieces) == 12:
                os.kill(engine, signal.SIGSTOP)
    assert "".join(pieces) == whole.json()["output"]["choices"][0]["text"]
    assert len(engine_pids(worker)) == 1
    assert_ended_alone(platform, engine, worker)


@pytest.mark.nightly
def test_an_engine_that_reads_no_more_ends_before_its_worker(platform: Platform) -> None:
    """A call that doesn't fit the pipe is sent for a second longer than a step may take: the
    watchdog would kill a worker whose limit is the same."""
    unread = [{"type": "function", "function": {"name": "f", "description": "x" * 600_000}}]
    messages = [{"role": "user", "content": "The cat sat"}]
    given = {"messages": messages, "tools": unread, "tool_choice": "none", "max_tokens": 5}
    body = {"model": "tiny", "input": given, "timeout_ms": 120_000}
    url = f"{platform.url}/infer"
    assert httpx.post(url, json=body, timeout=PATIENCE_S).status_code == 200
    worker = pid_of(platform)
    [engine] = engine_pids(worker)
    os.kill(engine, signal.SIGSTOP)
    with supervised(platform):
        assert httpx.post(url, json=body, timeout=PATIENCE_S).status_code == 200
    assert_ended_alone(platform, engine, worker)


def assert_ended_alone(platform: Platform, engine: int, worker: int) -> None:
    assert gone(engine)
    assert pid_of(platform) == worker
    workers = httpx.get(f"{platform.url}/workers").json()["data"]
    assert not [one for one in workers if one["died"]]
