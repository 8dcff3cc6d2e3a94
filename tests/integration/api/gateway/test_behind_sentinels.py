"""Redis behind Sentinels, with passwords of both: calls, workers and nudges find the server that is
the master, and the next one after it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection

from api.gateway.cluster.pipeline import open_pipeline
from jobs.calls.messages import Reply
from jobs.calls.redis import RedisLanes, connect
from jobs.settings import Settings
from tests.integration.api.gateway.stage import FAST, NEW, Stage, on_stage
from tests.support.stores.redis_sentinel import DB, WatchedRedis
from tests.support.wait import PATIENCE_S, eventually, eventually_async
from workers.broker import CONNECTION_ERRORS, WORK, create_app, queue_of

CALLS = 8


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedRedis]:
    with WatchedRedis(tmp_path) as made:
        yield made


@pytest.fixture
async def stage(watched: WatchedRedis) -> AsyncIterator[Stage]:
    with closing(connect(watched.url, PATIENCE_S)) as client:
        async with on_stage(watched.url, client) as made:
            yield made


def test_every_client_uses_the_database_of_the_address(watched: WatchedRedis) -> None:
    with closing(connect(watched.url, PATIENCE_S)) as client:
        client.set("a", "b")
    assert watched.ask(watched.master, "INFO", "keyspace").keys() == {f"db{DB}"}


@pytest.mark.anyio
async def test_each_sentinel_says_why_there_is_no_master(watched: WatchedRedis) -> None:
    known = watched.url.rpartition(",")[2].partition("/")[0]
    other = watched.url.replace("/calls/", "/others/")
    stranger = watched.url.replace("sentinel_password=", "sentinel_password=not-")
    for url, why in ((other, "No such master"), (stranger, "invalid username-password")):
        said = rf"no Sentinel names a master of .*:\d+: .*; {known}: .*{why}"
        refused = pytest.raises(redis.ConnectionError, match=said)
        with closing(connect(url, PATIENCE_S)) as client, refused:
            client.ping()
        pipe = open_pipeline(url, PATIENCE_S)
        with pytest.raises(redis.ConnectionError, match=said):
            await pipe.ping()
        await pipe.close()


@pytest.mark.anyio
async def test_calls_that_wait_are_answered_after_a_failover(
    stage: Stage, watched: WatchedRedis
) -> None:
    """The replica has what it acknowledged; nothing is asked of any client but to go on."""
    stage.open(NEW, b16=FAST)
    await stage.answered(NEW, stage.call(NEW))
    await stage.fill(NEW, CALLS)
    await asyncio.to_thread(eventually, watched.has_replica)
    await asyncio.to_thread(watched.fail_over)
    await eventually_async(partial(_work, stage))
    for way, (output, error, _, _) in await asyncio.gather(*stage.unanswered):
        assert (way.model, output, error) == (NEW, b'"output"', None)
    stage.unanswered.clear()
    await stage.answered(NEW, stage.call(NEW))


def _work(stage: Stage) -> bool:
    """Answers calls that wait, as far as Redis can be reached. Returns True once all are."""
    lanes = stage.lanes(NEW)
    with suppress(redis.RedisError):
        stage.ready(NEW, b16=FAST)
        if lanes.look("s").lanes:
            for call in stage.take(NEW):
                reply = Reply(call.id, b'"output"', None, call.size, {})
                lanes.reply(call.reply_to, [reply])
    return all(task.done() for task in stage.unanswered)


@pytest.mark.anyio
async def test_a_master_that_became_a_replica_is_left(stage: Stage, watched: WatchedRedis) -> None:
    """Its clients are still connected to it."""
    lanes = RedisLanes(stage.redis, NEW.key)
    lanes.announce("w", PATIENCE_S)
    await stage.pipe.ask("SET", "a", "b")
    watched.demote()
    with pytest.raises(redis.ResponseError, match="READONLY"):
        lanes.announce("w", PATIENCE_S)
    lanes.announce("w", PATIENCE_S)
    stage.redis.set("a", "c")
    with pytest.raises(redis.ConnectionError, match="replica"):
        await stage.pipe.ask("SET", "a", "d")
    assert await stage.pipe.ask("SET", "a", "e") == b"OK"


def test_nudges_go_on_after_a_failover(watched: WatchedRedis) -> None:
    settings = Settings(redis_url=watched.url)
    app, received = create_app(settings), list[Any]()

    def nudge() -> bool:
        try:
            app.send_task(WORK, connection=sending)
        except CONNECTION_ERRORS:
            sending.release()
            return False
        return True

    def receive() -> bool:
        with app.connection_for_read() as connection:
            queue = queue_of(settings.pool)(connection.default_channel)
            message = queue.get(no_ack=True)
        received.append(message)
        return message is not None

    sending: Connection = app.connection_for_write()
    with sending:
        assert nudge()
        assert receive()
        watched.fail_over()
        eventually(nudge)
        eventually(receive)
