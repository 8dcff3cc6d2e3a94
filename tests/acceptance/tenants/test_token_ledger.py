"""Tokens in the ledger are those that workers generated: of calls, of streams that were broken off
and of jobs whose worker was killed. Real processes, as `millrace up` starts them."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import httpx
import pytest
import redis
from sqlalchemy import Engine, text

from jobs.calls.redis import RedisLanes
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import kill
from tests.support.clients import chat
from tests.support.jobs import assert_invariants, begun, finish
from tests.support.models.entries import model
from tests.support.pace import pace
from tests.support.platforms import spec
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

MODELS = model(
    "talk",
    "echo_chat",
    target_ttft_ms=60000,
    limits={"slice_items": 20},
    price={"per_1k_input_tokens": 2, "per_1k_cached_tokens": 1, "per_1k_output_tokens": 10},
    step_ms=5,
)
CALLS, ITEMS, CUT = 40, 200, 8
PLATFORM = spec(MODELS, workers=2, lease_s=2.0 * pace())
TOKENS = ("input_tokens", "cached_tokens", "output_tokens")


def complete(platform: Platform, n: int) -> dict[str, int]:
    body = {"model": "talk", **chat(f"call number {n}"), "timeout_ms": 60_000}
    answer = httpx.post(f"{platform.url}/v1/chat/completions", json=body, timeout=90)
    assert answer.status_code == 200, answer.text
    usage: dict[str, int] = answer.json()["usage"]
    return usage


def cut(platform: Platform, n: int) -> None:
    """Reads the beginning of a stream, and leaves."""
    endless = chat(f"go on and on {n}", min_tokens=8000, max_tokens=8000)
    body = {"model": "talk", **endless, "stream": True}
    url = f"{platform.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=90) as stream:
        assert stream.status_code == 200, stream.read()
        for line in stream.iter_lines():
            if '"content":"' in line:
                return


def counted(store: "redis.Redis", database: Engine) -> dict[str, int]:
    """Tokens, and ended calls, wherever they are now."""
    sums = dict.fromkeys((*TOKENS, "succeeded", "failed"), 0)
    for one in RedisLanes(store, "talk@1").usage(unfinished=True):
        for name in sums:
            sums[name] += getattr(one, name)
    for name, count in ledger(database, "calls").items():
        sums[name] += count
    return sums


def ledger(database: Engine, kind: str) -> dict[str, int]:
    names = (*TOKENS, "succeeded", "failed")
    columns = ", ".join(f"coalesce(sum({name}), 0)" for name in names)
    with database.connect() as tx:
        row = tx.execute(text(f"SELECT {columns} FROM usage WHERE kind = :kind"), {"kind": kind})
        return {name: int(count) for name, count in zip(names, row.one(), strict=True)}


def test_calls_and_broken_streams_are_counted_once(
    platform: Platform, store: "redis.Redis", database: Engine
) -> None:
    with ThreadPoolExecutor(16) as pool:
        cuts = [pool.submit(cut, platform, n) for n in range(CUT)]
        usages = list(pool.map(lambda n: complete(platform, n), range(CALLS)))
        for one in cuts:
            one.result()
    assert counted(store, database)["succeeded"] == CALLS
    eventually(lambda: counted(store, database)["failed"] == CUT)
    sums = counted(store, database)
    most = CUT * 8000
    output = sum(usage["completion_tokens"] for usage in usages)
    assert output < sums["output_tokens"] < output + most  # what was generated until each left
    prompts = sum(usage["prompt_tokens"] for usage in usages)
    assert sums["input_tokens"] > prompts


def test_a_job_is_billed_for_the_tokens_of_its_results(
    platform: Platform, client: Client, database: Engine
) -> None:
    inputs = [chat(f"item {n} " + "and more " * 30) for n in range(ITEMS)]
    before = ledger(database, "items")
    job = client.jobs.submit("talk", inputs).id
    eventually(lambda: begun(client, job))
    kill(platform)
    usages = [result.output["usage"] for result in finish(platform, client, job)]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    after = ledger(database, "items")
    assert {name: count - before[name] for name, count in after.items()} == {
        "input_tokens": sum(usage["prompt_tokens"] for usage in usages),
        "cached_tokens": sum(cached),
        "output_tokens": sum(usage["completion_tokens"] for usage in usages),
        "succeeded": ITEMS,
        "failed": 0,
    }
    assert_invariants(platform)


def test_usage_tells_tokens_and_their_price(
    platform: Platform, client: Client, database: Engine
) -> None:
    client.jobs.wait(client.jobs.submit("talk", [chat("one two three")]).id)
    query = {"by": "kind"}
    groups = httpx.get(f"{platform.url}/usage", params=query).json()["data"]
    [items] = [group for group in groups if group["kind"] == "items"]
    found = ledger(database, "items")
    assert items["tokens"] == {
        "input": found["input_tokens"],
        "cached": found["cached_tokens"],
        "output": found["output_tokens"],
    }
    fresh = found["input_tokens"] - found["cached_tokens"]
    price = 2 * fresh + found["cached_tokens"] + 10 * found["output_tokens"]
    assert Decimal(items["amount"]) == Decimal(price) / 1000
