"""The pipe to Redis: answers in order, and an error for each command that has none."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, ResponseError

from api.gateway.redis_pipeline import PipelineScript, RedisPipeline
from ops.bench.chaos.network.faulty_proxy import faulty_proxy
from ops.embedded.servers import EmbeddedServers
from tests.support.wait import PATIENCE_S, eventually_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def timeout_s() -> float:
    return PATIENCE_S


@pytest.fixture
async def pipe(
    servers: EmbeddedServers, redis_client: "redis.Redis", timeout_s: float
) -> AsyncIterator[RedisPipeline]:
    made = RedisPipeline(servers.redis.url, timeout_s)
    yield made
    await made.close()


async def echoes(pipe: RedisPipeline, many: int) -> list[Any]:
    found = await asyncio.gather(
        *(pipe.ask("ECHO", str(n)) for n in range(many)), return_exceptions=True
    )
    return list(found)


async def test_everybody_gets_the_answer_of_their_own_command(pipe: RedisPipeline) -> None:
    assert await echoes(pipe, 500) == [str(n).encode() for n in range(500)]
    assert await pipe.ask("ECHO", b"x" * 1_000_000) == b"x" * 1_000_000


async def test_an_error_is_that_of_one_command(pipe: RedisPipeline) -> None:
    found = await asyncio.gather(
        pipe.ask("ECHO", "a"), pipe.ask("HGET"), pipe.ask("ECHO", "b"), return_exceptions=True
    )
    assert (found[0], type(found[1]), found[2]) == (b"a", ResponseError, b"b")


@pytest.mark.parametrize("timeout_s", [1.0])
async def test_the_delay_of_this_loop_is_no_silence_of_redis(pipe: RedisPipeline) -> None:
    await pipe.ping()
    asked = pipe.ask("ECHO", "a")
    time.sleep(1.5)  # it isn't sent yet
    assert await asked == b"a"


@pytest.mark.parametrize("what", [None, "\ud800"])
async def test_what_cant_be_sent_takes_nobodys_answer(pipe: RedisPipeline, what: Any) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        pipe.ask("ECHO", what)
    assert await echoes(pipe, 2) == [b"0", b"1"]


async def test_a_script_is_loaded_where_redis_doesnt_know_it(
    pipe: RedisPipeline, redis_client: "redis.Redis"
) -> None:
    script = PipelineScript(pipe, "return {KEYS[1], ARGV[1]}")

    async def run() -> Any:
        answer: asyncio.Future[Any] = asyncio.Future()
        script.send(answer.set_result, ["key"], ["argument"])
        return await answer

    for _ in range(2):
        redis_client.script_flush()
        assert [await run(), await run()] == [[b"key", b"argument"]] * 2


async def test_a_lost_connection_fails_who_waits_and_the_next_command_connects_again(
    pipe: RedisPipeline, redis_client: "redis.Redis"
) -> None:
    id = await pipe.ask("CLIENT", "ID")
    blocked, after = pipe.ask("BLPOP", "nothing", 0), pipe.ask("ECHO", "x")
    await asyncio.sleep(0)  # what was asked leaves at the end of this turn
    await eventually_async(
        lambda: redis_client.client_list(client_id=[id])[0]["cmd"].startswith("blpop")
    )
    redis_client.client_kill_filter(_id=id)
    for lost in (blocked, after):
        with pytest.raises(ConnectionError):
            await lost
    assert await echoes(pipe, 3) == [b"0", b"1", b"2"]
    assert await pipe.ask("CLIENT", "ID") != id


async def test_a_connection_that_is_lost_as_it_comes_about_is_made_again(
    pipe: RedisPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = AbstractConnection.connect

    async def connect_and_lose(connection: AbstractConnection) -> None:
        monkeypatch.setattr(AbstractConnection, "connect", connect)
        await connection.connect()
        connection._writer.transport.abort()  # noqa: SLF001 - redis-py shows it to nobody
        await asyncio.sleep(0)  # in which the loop says so

    monkeypatch.setattr(AbstractConnection, "connect", connect_and_lose)
    with pytest.raises(ConnectionError):
        await pipe.ask("PING")
    assert await pipe.ask("PING") == b"PONG"


async def test_nobody_waits_for_a_redis_that_is_not_there() -> None:
    pipe = RedisPipeline("unix:///nowhere/redis.sock", PATIENCE_S)
    for _ in range(2):
        assert [type(found) for found in await echoes(pipe, 3)] == [ConnectionError] * 3


@pytest.mark.parametrize("timeout_s", [0.5])
async def test_a_connection_that_fell_silent_is_given_up(
    pipe: RedisPipeline, servers: EmbeddedServers
) -> None:
    process = servers.redis.process
    assert process is not None
    while (await echoes(pipe, 1)) != [b"0"]:
        pass
    os.kill(process.pid, signal.SIGSTOP)
    try:
        assert [type(found) for found in await echoes(pipe, 3)] == [ConnectionError] * 3
    finally:
        os.kill(process.pid, signal.SIGCONT)
    while (await echoes(pipe, 1)) != [b"0"]:
        pass


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
async def test_connections_that_are_reset_at_once_leave_nothing_waiting(
    servers: EmbeddedServers,
) -> None:
    with faulty_proxy(urlsplit(servers.redis.url).path) as proxy:
        pipe = RedisPipeline(f"redis://127.0.0.1:{proxy.port}/0", PATIENCE_S)
        proxy.inject("reset")
        for _ in range(200):  # where the reset arrives between two turns of the loop is chance
            with pytest.raises(ConnectionError):
                async with asyncio.timeout(PATIENCE_S):
                    await pipe.ping()
        proxy.inject("none")
        async with asyncio.timeout(PATIENCE_S):
            assert await pipe.ping()
        await pipe.close()
