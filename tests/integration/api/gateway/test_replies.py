"""The reader of replies, in a loop that has much else to do."""

import asyncio
import time

import pytest
import redis

from api.gateway.cluster.replies import ReplyReader
from ops.embedded.servers import EmbeddedServers
from tests.support.wait import eventually_async

pytestmark = pytest.mark.anyio

_KEY = "millrace:replies:api_test"
_TURN_S = 0.005


async def test_many_messages_come_in_each_turn_of_a_busy_loop(
    servers: EmbeddedServers, redis_client: "redis.Redis"
) -> None:
    sent = [b"%d" % n for n in range(1000)]
    redis_client.rpush(_KEY, *sent)
    got: list[bytes] = []
    reader = ReplyReader(servers.redis.url, got.append)
    reader.read("", _KEY)
    turns = 0
    while len(got) < len(sent) and turns < len(sent):
        time.sleep(_TURN_S)  # what a busy loop does in a turn
        await asyncio.sleep(0)
        turns += 1
    await reader.stop()
    assert got == sent, f"{len(got)} messages in {turns} turns"


async def test_messages_are_read_on_after_the_connection_was_lost(
    servers: EmbeddedServers, redis_client: "redis.Redis"
) -> None:
    got: list[bytes] = []
    reader = ReplyReader(servers.redis.url, got.append)
    reader.read("", _KEY)
    redis_client.rpush(_KEY, b"before")
    await eventually_async(lambda: got == [b"before"])
    redis_client.client_kill_filter(_type="normal", skipme=True)
    redis_client.rpush(_KEY, b"after")
    await eventually_async(lambda: got == [b"before", b"after"])
    await reader.stop()
