"""The reader of replies, in a loop that has much else to do."""

import pytest
import redis

from api.gateway.cluster.replies import ReplyReader
from ops.embedded.servers import EmbeddedServers
from tests.support.wait import eventually, eventually_async

pytestmark = pytest.mark.anyio

_KEY = "millrace:replies:api_test"


async def test_messages_leave_redis_while_the_loop_stands_still(
    servers: EmbeddedServers, redis_client: "redis.Redis"
) -> None:
    got: list[bytes] = []
    reader = ReplyReader(servers.redis.url, got.append)
    reader.read("", _KEY)
    await eventually_async(lambda: redis_client.info("clients")["blocked_clients"] == 1)
    sent = [b"%d" % n for n in range(16)]
    redis_client.rpush(_KEY, *sent)
    eventually(lambda: not redis_client.exists(_KEY))  # in no turn of the loop
    assert got == []
    await eventually_async(lambda: got == sent)
    await reader.stop()


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
