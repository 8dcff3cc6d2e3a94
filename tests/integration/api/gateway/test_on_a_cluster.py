"""The gateway and its pipeline on a Redis Cluster: every node is asked for its own, and quotas hold
although they are on another node than the call."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import RedisError, ResponseError

from api.gateway.cluster.pipeline import ClusterPipeline, open_pipeline
from api.gateway.gateway import CallGateway
from api.gateway.redis_pipeline import Pipeline, PipelineScript
from api.gateway.response_cache import ResponseCache
from jobs.calls.accounting.settlement import settle_quotas
from jobs.calls.keys import open_key
from jobs.calls.lanes import LanesState, Ticket
from jobs.calls.messages import Reply
from jobs.calls.redis import connect
from jobs.errors import NoWorker, QuotaExceeded
from jobs.identity import Limit
from jobs.intake.idempotency_key import Claim
from jobs.models.inputs.generation import TokenUsage
from jobs.models.model import Model
from jobs.models.registry import Registry
from tests.integration.api.gateway.stage import FAST, LEASE_S, Stage
from tests.support.stores.redis_cluster import RedisCluster
from tests.support.wait import eventually_async, slowdown

MODELS = [Model("m", str(n), "minilm", target_ms=2000) for n in range(6)]
Test = Callable[[Any], Coroutine[Any, Any, None]]


@pytest.fixture
def on_stage(redis_cluster: RedisCluster) -> Callable[[Test], None]:
    @asynccontextmanager
    async def stage() -> AsyncIterator[Stage]:
        gateway = CallGateway(redis_cluster.url, 50)
        gateway.start()
        pipe = open_pipeline(redis_cluster.url, 5.0)
        responses = ResponseCache(redis_cluster.url, 60.0)
        made = Stage(connect(redis_cluster.url), gateway, Registry(MODELS), pipe, responses)
        try:
            yield made
        finally:
            await gateway.stop()
            await pipe.close()
            await responses.stop()

    def run(test: Test) -> None:
        async def on() -> None:
            async with stage() as made:
                await asyncio.wait_for(test(made), 30 * slowdown())

        asyncio.run(on())

    return run


@pytest.fixture
def on_pipe(redis_cluster: RedisCluster) -> Callable[[Test], None]:
    def run(test: Test) -> None:
        async def on() -> None:
            pipe = open_pipeline(redis_cluster.url, timeout_s=slowdown())
            assert isinstance(pipe, ClusterPipeline)
            try:
                await asyncio.wait_for(test(pipe), 30 * slowdown())
            finally:
                await pipe.close()

        asyncio.run(on())

    return run


def test_models_on_all_nodes_answer(on_stage: Callable[[Test], None]) -> None:
    async def test(stage: Stage) -> None:
        for model in MODELS:
            stage.ready(model, b16=FAST)
        for model in MODELS:
            assert (await stage.answered(model, stage.call(model))).model == model
        assert await stage.gateway.reachable()

    on_stage(test)


def test_a_rate_is_charged_for_admitted_calls_alone(on_stage: Callable[[Test], None]) -> None:
    async def test(stage: Stage) -> None:
        limits = (Limit(tokens_per_s=13),)
        for _ in range(3):
            with pytest.raises(NoWorker):  # and gets its 12 tokens back
                await stage.call(MODELS[0], limits=limits)
            assert await stage.gateway.reachable()  # which has read what it sent before
        stage.ready(MODELS[0], b16=FAST)
        stage.ready(MODELS[1], b16=FAST)
        await stage.answered(MODELS[0], stage.call(MODELS[0], limits=limits))
        with pytest.raises(QuotaExceeded):
            await stage.call(MODELS[1], limits=limits)

    on_stage(test)


def test_a_call_is_open_until_it_has_ended(on_stage: Callable[[Test], None]) -> None:
    async def test(stage: Stage) -> None:
        limits = (Limit(calls_in_flight=1),)
        for model in MODELS[:2]:
            stage.ready(model, b16=FAST)
        first = asyncio.create_task(stage.call(MODELS[0], limits=limits))
        await eventually_async(lambda: stage.lanes(MODELS[0]).look("s").lanes or first.done())
        with pytest.raises(QuotaExceeded):
            await stage.call(MODELS[1], limits=limits)
        first.cancel()
        await asyncio.wait({first})
        key = open_key("t", ":")
        await eventually_async(lambda: not stage.redis.zcard(key))
        await stage.answered(MODELS[1], stage.call(MODELS[1], limits=limits))

    on_stage(test)


def test_a_call_whose_slot_moves_is_answered(
    on_stage: Callable[[Test], None], redis_cluster: RedisCluster
) -> None:
    async def test(stage: Stage) -> None:
        model = MODELS[0]
        stage.ready(model, b16=FAST)
        await stage.answered(model, stage.call(model))  # its replies are read from now on
        key = stage.lanes(model).keys("calls")
        here = redis_cluster.port_of(key)
        there = next(port for port in redis_cluster.ports if port != here)
        await asyncio.to_thread(redis_cluster.move_slot, key, there)
        try:
            await stage.answered(model, stage.call(model))
        finally:
            await asyncio.to_thread(redis_cluster.move_slot, key, here)

    on_stage(test)


def test_calls_that_a_node_lost_are_refused_and_those_of_others_are_not(
    on_stage: Callable[[Test], None], redis_cluster: RedisCluster
) -> None:
    async def test(stage: Stage) -> None:
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

    on_stage(test)


def test_a_key_makes_one_call(redis_cluster: RedisCluster) -> None:
    async def test() -> None:
        cache = ResponseCache(redis_cluster.url, ttl_s=60)

        async def call() -> bytes:
            return b"response"

        claims = [Claim("t", f"key-{n}", b"f" * 32) for n in range(6)]
        for claim in claims:
            assert await cache.once(claim, 10_000, call) == (b"response", False)
            assert await cache.once(claim, 10_000, call) == (b"response", True)
        await cache.stop()

    asyncio.run(test())


def test_a_command_goes_to_the_node_of_its_key(on_pipe: Callable[[Test], None]) -> None:
    async def test(pipe: Pipeline) -> None:
        keys = [f"key-{n}" for n in range(30)]
        await asyncio.gather(*(pipe.ask("SET", key, key) for key in keys))
        assert await asyncio.gather(*(pipe.ask("GET", key) for key in keys)) == [
            key.encode() for key in keys
        ]
        script = PipelineScript(pipe, "return {KEYS[1], redis.call('GET', KEYS[1])}")
        for key in keys:
            assert await script.ask([key], []) == [key.encode()] * 2
        clocks = [int((await pipe.ask_at(key, "TIME"))[0]) for key in keys]
        assert max(clocks) - min(clocks) < 30 * slowdown()
        with pytest.raises(ResponseError):
            await pipe.ask("HGET", "key-1")

    on_pipe(test)


def test_a_slot_on_its_way_is_asked_for_at_both_nodes(
    on_pipe: Callable[[Test], None], redis_cluster: RedisCluster
) -> None:
    async def test(pipe: Pipeline) -> None:
        here = redis_cluster.port_of("moving")
        there = next(port for port in redis_cluster.ports if port != here)
        await pipe.ask("SET", "{moving}:old", "old")
        with redis_cluster.moving("moving", there):
            await pipe.ask("SET", "{moving}:new", "new")  # which goes to its new node
            assert await pipe.ask("GET", "{moving}:old") == b"old"
            assert await pipe.ask("GET", "{moving}:new") == b"new"
        assert await pipe.ask("GET", "{moving}:old") == b"old"

    on_pipe(test)


def test_nobody_waits_for_a_cluster_that_is_away() -> None:
    async def test() -> None:
        pipe = open_pipeline("redis+cluster://127.0.0.1:1,127.0.0.1:2", timeout_s=slowdown())
        with pytest.raises(RedisError):
            await pipe.ask("GET", "key")
        with pytest.raises(RedisError):
            await pipe.ping()
        await pipe.close()

    asyncio.run(test())


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
def test_tokens_a_minute_are_settled_in_their_tenants_slot(
    on_stage: Callable[[Test], None], used: int | None, rest: int
) -> None:
    """used: by the call that was answered; None: it was withdrawn before."""

    async def test(stage: Stage) -> None:
        lanes = stage.lanes(TALK)
        lanes.announce("w", LEASE_S)
        calls = [
            asyncio.create_task(stage.call(TALK, prompt(n), limits=LIMITS)) for n in (180, 400)
        ]
        state = await eventually_async(lambda: rows(lanes.look("s")) == 2 and lanes.look("s"))
        assert 350 < await left(stage) <= 420
        if used is None:
            calls[1].cancel()
        else:
            ticket = Ticket(state.lanes[0].lane, 2, 0, state.now_ms, 1, 0, "pace", "w", "s", 1e6)
            taken = lanes.take(ticket) or []
            whose = 0, {}, "t", "standard", 0, TokenUsage(3, 0, used - 3)
            lanes.reply(taken[1].reply_to, [Reply(taken[1].id, b'"output"', None, *whose)])
            await calls[1]
        assert await eventually_async(lambda: settle_quotas(stage.redis, [TALK.key])) == 1
        assert rest - 50 < await left(stage) <= rest + 20
        calls[0].cancel()

    on_stage(test)


def rows(state: LanesState) -> int:
    return sum(lane.rows for lane in state.lanes)
