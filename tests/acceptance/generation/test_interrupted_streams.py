"""Streams whose api is killed or stopped, which the other api goes on with, and streams whose
deltas Redis refuses for a moment."""

import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import Engine

from jobs.calls.keys import Keys
from jobs.calls.redis import RedisLanes
from ops.processes.children import Child
from ops.supervisor.platform import Platform
from tests.support.children import second_api
from tests.support.clients import Event, events
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.stores.broker_faults import full
from tests.support.wait import PATIENCE_S, eventually, pause

ROOM = {"target_ttft_ms": 60000, "context_tokens": 65536, "blocks": 65536}
MODELS = model("talk", "echo_chat", step_ms=20.0, **ROOM)
MODELS += model("quick", "echo_chat", step_ms=5.0, **ROOM)
PLATFORM = GENERATING
WORDS = 400
CHAT = {
    "model": "talk",
    "stream": True,
    "temperature": 0,
    "messages": [{"role": "user", "content": " ".join(f"w{n}" for n in range(WORDS))}],
}
PATH = "/v1/chat/completions"


@pytest.fixture
def second(platform: Platform) -> Iterator[Child]:
    with second_api(platform) as child:
        yield child


def read(response: httpx.Response) -> Iterator[Event]:
    return events(response.iter_lines())


def words(chunks: list[Any]) -> list[str]:
    pieces = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    return "".join(piece or "" for piece in pieces).split()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_the_other_api_goes_on_with_a_stream(
    platform: Platform, second: Child, number: signal.Signals
) -> None:
    headers, chunks, last = {"X-Millrace-Resume-Within": "120"}, list[Any](), ""
    url = second.name + PATH
    stream = httpx.stream("POST", url, json=CHAT, headers=headers, timeout=PATIENCE_S)
    try:
        with stream as response:
            for id, _, chunk in read(response):
                last = id
                if "error" in (chunk or {}):
                    assert chunk["error"]["code"] == "api_stopping"
                    break
                chunks.append(chunk)
                if len(chunks) == 20 and second.process:
                    second.process.send_signal(number)
    except httpx.TransportError:
        assert number == signal.SIGKILL
    assert 0 < len(words(chunks)) < WORDS
    headers = {"Last-Event-ID": last}
    url = platform.url + PATH
    with httpx.stream("POST", url, json=CHAT, headers=headers, timeout=PATIENCE_S) as response:
        rest = [chunk for _, _, chunk in read(response)]
    assert rest.pop() is None
    assert words(chunks + rest) == [f"w{n}" for n in range(WORDS)]
    assert len({chunk["id"] for chunk in chunks + rest}) == 1


def test_a_call_that_nobody_comes_back_for_is_dropped(second: Child, store: "redis.Redis") -> None:
    body = {**CHAT, "min_tokens": 60_000, "max_tokens": 60_000}
    headers = {"X-Millrace-Resume-Within": "1"}
    url = second.name + PATH
    with httpx.stream("POST", url, json=body, headers=headers, timeout=PATIENCE_S) as response:
        first = read(response)
        next(first)
        calls = Keys("talk@1")("calls")
        assert store.hlen(calls) == 1
        assert second.process
        second.process.kill()
    eventually(lambda: store.hlen(calls) == 0)


TOKENS = 1000
LONG = {"prompt": "on and on", "max_tokens": TOKENS, "min_tokens": TOKENS}
_GENERATED = re.compile(
    r'^millrace_generation_tokens_total\{.*model="quick@1".*\} ([\d.e+]+)$', re.MULTILINE
)

Fault = Callable[["redis.Redis"], AbstractContextManager[None]]


@contextmanager
def cut(client: "redis.Redis") -> Iterator[None]:
    """All connections are closed, as by a proxy that restarts."""
    client.client_kill_filter(_type="normal", skipme=True)
    yield


@pytest.fixture(autouse=True)
def _is_served(platform: Platform) -> None:
    """The worker is known again, though a test has emptied Redis; and has counted that."""
    body = {"model": "quick", "input": {"prompt": "hello", "max_tokens": 1}}
    before = generated(platform)
    eventually(lambda: httpx.post(f"{platform.url}/infer", json=body).is_success)
    eventually(lambda: generated(platform) > before)


def generated(platform: Platform) -> int:
    """Tokens that the worker counted when their calls ended."""
    texts = [httpx.get(url).raise_for_status().text for url in platform.metrics]
    return int(sum(float(n) for text in texts for n in _GENERATED.findall(text)))


def billed(platform: Platform, store: "redis.Redis", database: Engine) -> tuple[int, int]:
    """Output tokens and failed calls: in the ledger, and on their way there."""
    used = RedisLanes(store, "quick@1").usage(unfinished=True)
    tokens, failed = sum(one.output_tokens for one in used), sum(one.failed for one in used)
    query = """SELECT coalesce(sum(output_tokens), 0), coalesce(sum(failed), 0) FROM usage
               WHERE kind = 'calls' AND model = 'quick'"""
    with database.connect() as tx:
        [stored] = tx.exec_driver_sql(query)
    return tokens + int(stored[0]), failed + int(stored[1])


def read_all(platform: Platform) -> tuple[int, dict[str, Any]]:
    """Reads a stream to its end: the number of its tokens, and its last event."""
    tokens, last = 0, dict[str, Any]()
    body = {"model": "quick", "input": LONG, "stream": True, "idle_ms": 120_000}
    url = f"{platform.url}/infer"
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as stream:
        assert stream.status_code == 200, stream.read()
        for event in events(stream.iter_lines()):
            last = event.data
            tokens += len(last.get("tokens", ()))
    return tokens, last


@pytest.mark.parametrize("fault", [full, cut])
def test_a_stream_whose_deltas_are_refused_goes_on_whole_and_is_billed_once(
    platform: Platform, store: "redis.Redis", database: Engine, fault: Fault
) -> None:
    (tokens, failed), before = billed(platform, store, database), generated(platform)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read_all, platform)
        while not stream.done():
            pause(0.5)
            with fault(store):
                pause(0.3)
        seen, last = stream.result()
    assert (seen, last.get("usage", {}).get("completion_tokens")) == (TOKENS, TOKENS), last
    eventually(lambda: billed(platform, store, database) == (tokens + TOKENS, failed))
    eventually(lambda: generated(platform) == before + TOKENS)


def test_a_stream_that_redis_lost_ends_with_an_error(
    platform: Platform, store: "redis.Redis"
) -> None:
    logs = "millrace:{quick@1}:log:*"
    before = {*store.keys(logs)}  # of streams that have ended
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read_all, platform)
        eventually(lambda: {*store.keys(logs)} - before)
        store.flushall()
        seen, last = stream.result()
    assert last.get("code") == "unavailable", last
    assert seen < TOKENS
