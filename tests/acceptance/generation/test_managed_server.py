"""A managed server, llama.cpp's, on a whole platform: it is killed under load, and drained."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import openai
import psutil
import pytest
from openai import OpenAI

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import kill, pid_of, until
from tests.support.models.entries import model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.servers import llama_server
from tests.support.wait import PATIENCE_S, eventually, gone

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]  # the server is installed


@pytest.fixture(scope="module")
def platform(platforms: Platforms) -> Iterator[Platform]:
    try:
        program, path = llama_server.installed()
    except llama_server.NotInstalled as error:
        pytest.skip(f"llama.cpp's server can't be used: {error}")
    models = model(
        "llama", "server", target_ttft_ms=600_000, limits={"backoff_ms": 100, "max_attempts": 20},
        options={
            "server": "llama-server", "program": str(program), "version": llama_server.VERSION,
            "path": str(path), "sha256": llama_server.GGUF_SHA256,
            "sequences": 4, "context_tokens": 1024, "threads": 1,
        },
    )  # fmt: skip
    with platforms.running(spec(models, lease_s=3.0 * pace())) as started:
        yield started


@pytest.fixture(autouse=True)
def ready(platform: Platform) -> None:
    """The test before this one may have killed the worker, or its server."""
    is_ready = f"{platform.url}/models/llama/ready"
    until(platform, lambda: len(servers(platform)) == 1)
    until(platform, lambda: httpx.get(is_ready, timeout=PATIENCE_S).status_code == 200)


def asked_for(text: str, tokens: int = 12) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": tokens, "temperature": 0}


def servers(platform: Platform) -> list[psutil.Process]:
    """Servers of the worker, of which each has a guardian."""
    found: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        for guardian in psutil.Process(pid_of(platform)).children():
            with suppress(psutil.NoSuchProcess):  # it ends, or has ended and waits for the worker
                found += [one for one in guardian.children() if "--alias" in one.cmdline()]
    return found


def submit(client: Client, count: int) -> str:
    inputs = [asked_for(f"Write about the number {n}.") for n in range(count)]
    return str(client.jobs.submit("llama", inputs).id)


def test_a_stream_has_text_usage_and_one_id(chat: OpenAI) -> None:
    asked: Any = asked_for("Say hello.")
    streamed: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks: Any = list(chat.chat.completions.create(model="llama", **asked, **streamed))
    text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert text
    assert len({one.id for one in chunks}) == 1
    assert chunks[-1].usage.completion_tokens == 12
    assert chat.chat.completions.create(model="llama", **asked).choices[0].message.content == text


def test_items_of_a_server_that_is_killed_again_and_again_succeed_once_each(
    platform: Platform, client: Client
) -> None:
    job = submit(client, 24)
    for done in (2, 10, 18):
        eventually(lambda done=done: client.jobs.get(job)["counts"]["succeeded"] >= done)
        [server] = eventually(lambda: servers(platform))
        with suppress(psutil.NoSuchProcess):
            os.kill(server.pid, signal.SIGKILL)
    assert client.jobs.wait(job)["counts"]["succeeded"] == 24
    results = list(client.jobs.results(job, wait=False))
    assert [one["seq"] for one in results] == list(range(24))
    assert all(one["output"]["choices"][0]["message"]["content"] for one in results)


def test_calls_of_a_server_that_is_killed_end_with_an_answer_or_an_error(
    platform: Platform, chat: OpenAI
) -> None:
    def ask(n: int) -> str:
        asked: Any = asked_for(f"Tell the story of {n} ships.", 150)
        pieces = []
        try:
            stream = chat.chat.completions.create(model="llama", stream=True, **asked)
            for chunk in stream:
                pieces.append(chunk.choices[0].delta.content or "")
                started.add(n)
        except openai.APIError as error:
            return f"error after {len(pieces)}: {error}"
        return "".join(pieces)

    started: set[int] = set()
    with ThreadPoolExecutor(8) as pool:  # the server takes four at a time
        ends = [pool.submit(ask, n) for n in range(8)]
        eventually(lambda: len(started) >= 3 or any(end.done() for end in ends))
        assert len(started) >= 3, [end.result() for end in ends if end.done()]
        [server] = servers(platform)
        begun = set(started)
        server.kill()
        found = [end.result(PATIENCE_S) for end in ends]
    assert all(found)
    broken = {n for n, text in enumerate(found) if text.startswith("error after")}
    assert broken  # a stream of a server that is gone can't go on
    assert set(range(8)) - broken  # what had not begun was sent to the new server
    assert all("error after 0" not in found[n] for n in broken)
    assert begun & broken


def test_a_drained_worker_ends_its_call_then_its_server(platform: Platform, client: Client) -> None:
    [server] = servers(platform)
    worker = pid_of(platform)
    before_s = server.cpu_times().user
    with ThreadPoolExecutor(1) as pool:
        body = {"model": "llama", "input": asked_for("Say hello.", 60), "timeout_ms": 120_000}
        answer = pool.submit(httpx.post, f"{platform.url}/infer", json=body, timeout=PATIENCE_S)
        eventually(lambda: answer.done() or server.cpu_times().user > before_s + 0.05)
        assert not answer.done(), answer.result().text
        os.kill(worker, signal.SIGTERM)
        assert answer.result().status_code == 200, answer.result().text
    eventually(lambda: gone(worker))
    eventually(lambda: gone(server.pid))
    until(platform, lambda: pid_of(platform) != worker)
    assert client.jobs.wait(submit(client, 2))["counts"]["succeeded"] == 2


def test_a_worker_that_is_killed_leaves_no_server(platform: Platform) -> None:
    [server] = servers(platform)
    guardian = server.parent()
    assert guardian
    kill(platform)
    eventually(lambda: gone(guardian.pid))
    eventually(lambda: gone(server.pid))
