"""Streams whose deltas Redis refuses for a moment: they go on whole, and are billed once."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import Engine

from jobs.calls.redis import RedisLanes
from ops.supervisor.platform import Platform
from tests.support.clients import events
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.wait import PATIENCE_S, eventually, pause

MODELS = model(
    "talk", "echo_chat", target_ttft_ms=60000, step_ms=5.0, context_tokens=65536, blocks=65536
)
PLATFORM = GENERATING
TOKENS = 1000
LONG = {"prompt": "on and on", "max_tokens": TOKENS, "min_tokens": TOKENS}
_GENERATED = re.compile(
    r'^millrace_generation_tokens_total\{.*model="talk@1".*\} ([\d.e+]+)$', re.MULTILINE
)


@contextmanager
def full(client: "redis.Redis") -> Iterator[None]:
    """Redis answers reads, and `-OOM command not allowed` to writes."""
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


@contextmanager
def cut(client: "redis.Redis") -> Iterator[None]:
    """All connections are closed, as by a proxy that restarts."""
    client.client_kill_filter(_type="normal", skipme=True)
    yield


@pytest.fixture(autouse=True)
def _is_served(platform: Platform) -> None:
    """The worker is known again, though a test has emptied Redis."""
    body = {"model": "talk", "input": {"prompt": "hello", "max_tokens": 1}}
    eventually(lambda: httpx.post(f"{platform.url}/infer", json=body).is_success)


def generated(platform: Platform) -> int:
    """Tokens that the worker counted when their calls ended."""
    texts = [httpx.get(url).raise_for_status().text for url in platform.metrics]
    return int(sum(float(n) for text in texts for n in _GENERATED.findall(text)))


def billed(platform: Platform, store: "redis.Redis", database: Engine) -> tuple[int, int]:
    """Output tokens and failed calls: in the ledger, and on their way there."""
    used = RedisLanes(store, "talk@1").usage(unfinished=True)
    tokens, failed = sum(one.output_tokens for one in used), sum(one.failed for one in used)
    query = "SELECT output_tokens, failed FROM usage WHERE kind = 'calls' AND model = 'talk'"
    with database.connect() as tx:
        for row in tx.exec_driver_sql(query):
            tokens, failed = tokens + row[0], failed + row[1]
    return tokens, failed


def read(platform: Platform) -> tuple[int, dict[str, Any]]:
    """Reads a stream to its end: the number of its tokens, and its last event."""
    tokens, last = 0, dict[str, Any]()
    body = {"model": "talk", "input": LONG, "stream": True, "idle_ms": 120_000}
    url = f"{platform.url}/infer"
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as stream:
        assert stream.status_code == 200, stream.read()
        for event in events(stream.iter_lines()):
            last = event.data
            tokens += len(last.get("tokens", ()))
    return tokens, last


@pytest.mark.parametrize("fault", [full, cut])
def test_a_stream_whose_deltas_are_refused_goes_on_whole_and_is_billed_once(
    platform: Platform,
    store: "redis.Redis",
    database: Engine,
    fault: Callable[["redis.Redis"], AbstractContextManager[None]],
) -> None:
    (tokens, failed), before = billed(platform, store, database), generated(platform)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read, platform)
        while not stream.done():
            pause(0.5)
            with fault(store):
                pause(0.3)
        seen, last = stream.result()
    assert (seen, last.get("usage", {}).get("completion_tokens")) == (TOKENS, TOKENS), last
    eventually(lambda: billed(platform, store, database) == (tokens + TOKENS, failed))
    eventually(lambda: generated(platform) == before + TOKENS)


def test_a_stream_that_redis_lost_ends_with_an_error_event(
    platform: Platform, store: "redis.Redis"
) -> None:
    logs = "millrace:{talk@1}:log:*"
    before = {*store.keys(logs)}  # of streams that have ended
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(read, platform)
        eventually(lambda: {*store.keys(logs)} - before)
        store.flushall()
        seen, last = stream.result()
    assert last.get("code") == "unavailable", last
    assert seen < TOKENS
