"""The gateway and its pipeline on a Redis Cluster: every node is asked for its own, and quotas hold
although they are on another node than the call."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import RedisError, ResponseError

from api.gateway.cluster.pipeline import ClusterPipeline, open_pipeline
from api.gateway.redis_pipeline import Pipeline, PipelineScript
from api.gateway.response_cache import ResponseCache
from jobs import clock
from jobs.calls.accounting.settlement import settle_quotas
from jobs.calls.keys import open_key
from jobs.calls.messages import Reply
from jobs.calls.redis import connect
from jobs.errors import NoWorker, QuotaExceeded
from jobs.identity import Limit
from jobs.intake.idempotency_key import Claim
from jobs.models.inputs.generation import TokenUsage
from jobs.models.model import Model
from tests.integration.api.gateway.stage import FAST, LEASE_S, Stage, on_stage, rows_of
from tests.support.stores.redis_cluster import RedisCluster
from tests.support.wait import PATIENCE_S, eventually_async

pytestmark = pytest.mark.anyio

MODELS = [Model("m", str(n), "minilm", target_ms=2000) for n in range(6)]


@pytest.fixture
async def stage(redis_cluster: RedisCluster) -> AsyncIterator[Stage]:
    async with on_stage(redis_cluster.url, connect(redis_cluster.url), MODELS) as made:
        yield made


@pytest.fixture
async def pipe(redis_cluster: RedisCluster) -> AsyncIterator[Pipeline]:
    made = open_pipeline(redis_cluster.url, PATIENCE_S)
    assert isinstance(made, ClusterPipeline)
    yield made
    await made.close()


async def test_models_on_all_nodes_answer(stage: Stage) -> None:
    for model in MODELS:
        stage.ready(model, b16=FAST)
    for model in MODELS:
        assert (await stage.answered(model, stage.call(model))).model == model
    assert await stage.gateway.reachable()


async def test_a_rate_is_charged_for_admitted_calls_alone(stage: Stage) -> None:
    limits = (Limit(requests_per_s=0.001, model="m"),)  # one, and the next after a long time
    for _ in range(3):
        with pytest.raises(NoWorker):  # and gets its request back
            await stage.call(MODELS[0], limits=limits)
        assert await stage.gateway.reachable()  # which has read what it sent before
    stage.ready(MODELS[0], b16=FAST)
    stage.ready(MODELS[1], b16=FAST)
    await stage.answered(MODELS[0], stage.call(MODELS[0], limits=limits))
    with pytest.raises(QuotaExceeded):
        await stage.call(MODELS[1], limits=limits)


async def test_a_call_is_open_until_it_has_ended(stage: Stage) -> None:
    limits = (Limit(calls_in_flight=1),)
    stage.ready(MODELS[0], b16=FAST)
    stage.ready(MODELS[1], b16=FAST)
    first = asyncio.create_task(stage.call(MODELS[0], limits=limits))
    await eventually_async(lambda: stage.lanes(MODELS[0]).look("s").lanes or first.done())
    with pytest.raises(QuotaExceeded):
        await stage.call(MODELS[1], limits=limits)
    first.cancel()
    await asyncio.wait({first})
    await eventually_async(lambda: not stage.redis.zcard(open_key("t", ":")))
    await stage.answered(MODELS[1], stage.call(MODELS[1], limits=limits))


def nodes(cluster: RedisCluster, key: str) -> tuple[int, int]:
    """The ports of the node that has a key, and of another."""
    here = cluster.port_of(key)
    return here, next(port for port in cluster.ports if port != here)


async def test_a_call_whose_slot_moves_is_answered(
    stage: Stage, redis_cluster: RedisCluster
) -> None:
    model = MODELS[0]
    stage.ready(model, b16=FAST)
    await stage.answered(model, stage.call(model))  # its replies are read from now on
    key = stage.lanes(model).keys("calls")
    here, there = nodes(redis_cluster, key)
    await asyncio.to_thread(redis_cluster.move_slot, key, there)
    try:
        await stage.answered(model, stage.call(model))
    finally:
        await asyncio.to_thread(redis_cluster.move_slot, key, here)


async def test_calls_that_a_node_lost_are_refused_and_those_of_others_are_not(
    stage: Stage, redis_cluster: RedisCluster
) -> None:
    ports = {m: redis_cluster.port_of(stage.lanes(m).keys("calls")) for m in MODELS}
    lost = MODELS[0]
    kept = next(model for model in MODELS if ports[model] != ports[lost])
    for model in (lost, kept):
        stage.ready(model, b16=FAST)
    calls = {m: asyncio.create_task(stage.call(m, timeout_ms=60_000)) for m in (lost, kept)}
    for model in (lost, kept):
        await eventually_async(lambda: stage.lanes(model).look("s").lanes)  # noqa: B023
    redis_cluster.ask(ports[lost], "FLUSHALL")
    with pytest.raises(Exception, match="lost with Redis"):
        await calls[lost]
    assert not calls[kept].done()
    calls[kept].cancel()
    await asyncio.wait({calls[kept]})


async def test_a_key_makes_one_call(redis_cluster: RedisCluster) -> None:
    cache = ResponseCache(redis_cluster.url, ttl_s=60)

    async def call() -> bytes:
        return b"response"

    claims = [Claim("t", f"key-{n}", b"f" * 32) for n in range(6)]
    for claim in claims:
        assert await cache.once(claim, 10_000, call) == (b"response", False)
        assert await cache.once(claim, 10_000, call) == (b"response", True)
    await cache.stop()


async def test_a_command_goes_to_the_node_of_its_key(pipe: Pipeline) -> None:
    keys = [f"key-{n}" for n in range(30)]
    await asyncio.gather(*(pipe.ask("SET", key, key) for key in keys))
    found = await asyncio.gather(*(pipe.ask("GET", key) for key in keys))
    assert found == [key.encode() for key in keys]
    script = PipelineScript(pipe, "return {KEYS[1], redis.call('GET', KEYS[1])}")
    for key in keys:
        assert await script.ask([key], []) == [key.encode()] * 2
    clocks = [int((await pipe.ask_at(key, "TIME"))[0]) for key in keys]
    assert max(clocks) - min(clocks) < PATIENCE_S
    with pytest.raises(ResponseError):
        await pipe.ask("HGET", "key-1")


async def test_a_slot_on_its_way_is_asked_for_at_both_nodes(
    pipe: Pipeline, redis_cluster: RedisCluster
) -> None:
    _, there = nodes(redis_cluster, "moving")
    await pipe.ask("SET", "{moving}:old", "old")
    with redis_cluster.moving("moving", there):
        await pipe.ask("SET", "{moving}:new", "new")  # which goes to its new node
        assert await pipe.ask("GET", "{moving}:old") == b"old"
        assert await pipe.ask("GET", "{moving}:new") == b"new"
    assert await pipe.ask("GET", "{moving}:old") == b"old"


async def test_nobody_waits_for_a_cluster_that_is_away() -> None:
    pipe = open_pipeline("redis+cluster://127.0.0.1:1,127.0.0.1:2", PATIENCE_S)
    with pytest.raises(RedisError):
        await pipe.ask("GET", "key")
    with pytest.raises(RedisError):
        await pipe.ping()
    await pipe.close()


TALK = Model("talk", "1", "echo_chat")
LIMITS = (Limit(tokens_per_min=1000),)


async def left(stage: Stage) -> int:
    """Tokens that may be used at once, as a call that asks for too many is told."""
    with pytest.raises(QuotaExceeded) as refused:
        await stage.call(TALK, prompt(10**6), limits=LIMITS)
    return int(refused.value.headers["x-ratelimit-remaining-tokens"])


def prompt(max_tokens: int) -> Any:
    return {"prompt": "one two three", "max_tokens": max_tokens}


@pytest.mark.parametrize(("used", "rest"), [(None, 800), (100, 700)])
async def test_tokens_a_minute_are_settled_in_their_tenants_slot(
    stage: Stage, used: int | None, rest: int
) -> None:
    """used: by the call that was answered; None: it was withdrawn before."""
    lanes, began_s = stage.lanes(TALK), clock.monotonic()
    lanes.announce("w", LEASE_S)
    calls = [asyncio.create_task(stage.call(TALK, prompt(n), limits=LIMITS)) for n in (180, 400)]
    await eventually_async(lambda: rows_of(lanes) == 2)

    def come_back() -> float:
        return 20 + (clock.monotonic() - began_s) * 1000 / 60

    assert 350 < await left(stage) <= 400 + come_back()
    if used is None:
        calls[1].cancel()
    else:
        _, taken = stage.take(TALK)
        whose = 0, {}, "t", "standard", 0, TokenUsage(3, 0, used - 3)
        lanes.reply(taken.reply_to, [Reply(taken.id, b'"output"', None, *whose)])
        await calls[1]
    assert await eventually_async(lambda: settle_quotas(stage.redis, [TALK.key])) == 1
    assert rest - 50 < await left(stage) <= rest + come_back()
    calls[0].cancel()
