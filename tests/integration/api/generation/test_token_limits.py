"""Tokens a minute over HTTP: charged with what a call may generate, settled when it ends."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import Engine

from jobs.calls.messages import Call, Reply
from jobs.identity import Limit
from jobs.models.inputs.generation import TokenUsage
from jobs.store.tenants import limits
from tests.integration.api.generation.conftest import Stage
from tests.support.generation.generation_worker import completion
from tests.support.stores.transactions import transact
from tests.support.wait import eventually

MOST = 1000
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


@pytest.fixture(autouse=True)
def _limited(database: Engine, stage: Stage) -> None:
    transact(database, limits.put, "acme", [Limit(tokens_per_min=MOST)])


def ended(stage: Stage, call: Call, tokens: TokenUsage) -> None:
    output, timing = orjson.dumps(completion("x", tokens.output)), {"ttft_ms": 1.0}
    reply = Reply(call.id, output, None, call.size, timing, call.tenant, tokens=tokens)
    stage.worker.lanes.reply(call.reply_to, [reply])


def answered(
    stage: Stage, tokens: TokenUsage, path: str = "/v1/chat/completions", **body: Any
) -> httpx.Response:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(stage.post, path, {**CHAT, **body})
        call = eventually(lambda: stage.worker.take_if_any() or asked.done())
        if isinstance(call, Call):
            ended(stage, call, tokens)
        return asked.result()


def left(response: httpx.Response) -> int:
    return int(response.headers["x-ratelimit-remaining-tokens"])


def test_a_call_is_charged_with_what_it_may_generate_and_settled(stage: Stage) -> None:
    first = answered(stage, TokenUsage(5, 0, 5), max_tokens=300, n=2)
    assert first.headers["x-ratelimit-limit-tokens"] == str(MOST)
    assert MOST - 650 < left(first) <= MOST - 600
    second = answered(stage, TokenUsage(5, 0, 5), max_tokens=10)
    assert left(second) > MOST - 100  # what the first did not use was given back


def test_a_call_without_a_bound_is_charged_with_an_estimate(stage: Stage) -> None:
    assert MOST - 300 < left(answered(stage, TokenUsage(5, 0, 5))) < MOST - 200


def test_above_the_limit_a_call_is_refused_in_openais_words(stage: Stage) -> None:
    answered(stage, TokenUsage(5, 0, 900), max_tokens=900)
    refused = answered(stage, TokenUsage(), max_tokens=900)
    error = refused.json()["error"]
    told = refused.status_code, error["type"], error["code"]
    assert told == (429, "tokens", "rate_limit_exceeded")
    assert left(refused) < 900
    reset_s = float(refused.headers["x-ratelimit-reset-tokens"].removesuffix("s"))
    assert 0 < reset_s < 60
    # A quarter of jitter, then rounded up.
    assert reset_s <= int(refused.headers["retry-after"]) <= 1.25 * reset_s + 1


@pytest.mark.parametrize("stream", [False, True])
def test_messages_have_anthropics_headers(stage: Stage, stream: bool) -> None:
    path, start = "/v1/messages", "anthropic-ratelimit-tokens"
    before = datetime.now(UTC)
    first = answered(stage, TokenUsage(5, 0, 900), path, max_tokens=900, stream=stream)
    assert first.headers[f"{start}-limit"] == str(MOST)
    assert MOST - 950 < int(first.headers[f"{start}-remaining"]) <= MOST - 900
    assert datetime.fromisoformat(first.headers[f"{start}-reset"]) > before
    refused = answered(stage, TokenUsage(), path, max_tokens=900, stream=stream)
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert int(refused.headers[f"{start}-remaining"]) < 900
    assert not any(name.startswith("anthropic") for name in answered(stage, TokenUsage()).headers)
