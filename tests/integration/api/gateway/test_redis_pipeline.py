"""The pipe to Redis: answers in order, and an error for each command that has none."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError, ResponseError

from api.gateway.redis_pipeline import PipelineScript, RedisPipeline
from ops.embedded.servers import EmbeddedServers
from tests.support.wait import eventually_async, slowdown


@pytest.fixture
def on_pipe(servers: EmbeddedServers, redis_client: "redis.Redis") -> Callable[..., None]:
    """Runs a test on an event loop of its own."""

    def run(test: Callable[[RedisPipeline], Coroutine[Any, Any, None]], url: str = "") -> None:
        async def on() -> None:
            pipe = RedisPipeline(url or servers.redis.url, timeout_s=0.5 * slowdown())
            try:
                await asyncio.wait_for(test(pipe), 20 * slowdown())
            finally:
                await pipe.close()

        asyncio.run(on())

    return run


async def echoes(pipe: RedisPipeline, many: int) -> list[Any]:
    found = await asyncio.gather(
        *(pipe.ask("ECHO", str(n)) for n in range(many)), return_exceptions=True
    )
    return list(found)


def test_everybody_gets_the_answer_of_their_own_command(on_pipe: Callable[..., None]) -> None:
    async def test(pipe: RedisPipeline) -> None:
        assert await echoes(pipe, 500) == [str(n).encode() for n in range(500)]
        assert await pipe.ask("ECHO", b"x" * 1_000_000) == b"x" * 1_000_000

    on_pipe(test)


def test_an_error_is_that_of_one_command(on_pipe: Callable[..., None]) -> None:
    async def test(pipe: RedisPipeline) -> None:
        found = await asyncio.gather(
            pipe.ask("ECHO", "a"), pipe.ask("HGET"), pipe.ask("ECHO", "b"), return_exceptions=True
        )
        assert (found[0], type(found[1]), found[2]) == (b"a", ResponseError, b"b")

    on_pipe(test)


@pytest.mark.parametrize("what", [None, "\ud800"])
def test_what_cant_be_sent_takes_nobodys_answer(on_pipe: Callable[..., None], what: Any) -> None:
    async def test(pipe: RedisPipeline) -> None:
        with pytest.raises((TypeError, UnicodeEncodeError)):
            pipe.ask("ECHO", what)
        assert await echoes(pipe, 2) == [b"0", b"1"]

    on_pipe(test)


def test_a_script_is_loaded_where_redis_doesnt_know_it(
    on_pipe: Callable[..., None], redis_client: "redis.Redis"
) -> None:
    async def test(pipe: RedisPipeline) -> None:
        script = PipelineScript(pipe, "return {KEYS[1], ARGV[1]}")

        async def run() -> Any:
            answer: asyncio.Future[Any] = asyncio.Future()
            script.send(answer.set_result, ["key"], ["argument"])
            return await answer

        for _ in range(2):
            redis_client.script_flush()
            assert [await run(), await run()] == [[b"key", b"argument"]] * 2

    on_pipe(test)


def test_a_lost_connection_fails_who_waits_and_the_next_command_connects_again(
    on_pipe: Callable[..., None], redis_client: "redis.Redis"
) -> None:
    async def test(pipe: RedisPipeline) -> None:
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

    on_pipe(test)


def test_a_connection_that_is_lost_as_it_comes_about_is_made_again(
    on_pipe: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(pipe: RedisPipeline) -> None:
        connect = AbstractConnection.connect

        async def connect_and_lose(connection: AbstractConnection) -> None:
            monkeypatch.setattr(AbstractConnection, "connect", connect)
            await connection.connect()
            connection._writer.transport.abort()  # noqa: SLF001 - redis-py shows it to nobody
            await asyncio.sleep(0)  # in which the loop says so

        monkeypatch.setattr(AbstractConnection, "connect", connect_and_lose)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(pipe.ask("PING"), 5)
        assert await asyncio.wait_for(pipe.ask("PING"), 5) == b"PONG"

    on_pipe(test)


def test_nobody_waits_for_a_redis_that_is_not_there(on_pipe: Callable[..., None]) -> None:
    async def test(pipe: RedisPipeline) -> None:
        for _ in range(2):
            assert [type(found) for found in await echoes(pipe, 3)] == [ConnectionError] * 3

    on_pipe(test, "unix:///nowhere/redis.sock")


def test_a_connection_that_fell_silent_is_given_up(
    on_pipe: Callable[..., None], servers: EmbeddedServers
) -> None:
    process = servers.redis.process
    assert process is not None

    async def test(pipe: RedisPipeline) -> None:
        assert await echoes(pipe, 1) == [b"0"]
        os.kill(process.pid, signal.SIGSTOP)
        try:
            assert [type(found) for found in await echoes(pipe, 3)] == [ConnectionError] * 3
        finally:
            os.kill(process.pid, signal.SIGCONT)
        while (await echoes(pipe, 1)) != [b"0"]:
            pass

    on_pipe(test)
