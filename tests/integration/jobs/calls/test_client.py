"""The client of the lanes sends scripts past redis-py's pool, and outlives its connections."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from jobs.calls.redis import RedisLanes, connect
from ops.embedded.servers import EmbeddedServers
from tests.integration.jobs.calls.made import MODEL


@pytest.fixture
def client(servers: EmbeddedServers, redis_client: "redis.Redis") -> Iterator["redis.Redis"]:
    made = connect(servers.redis.url)
    yield made
    made.close()


def scripts_connections(client: "redis.Redis") -> int:
    name = client.client_info()["id"]
    return sum(one["cmd"] == "evalsha" and one["id"] != name for one in client.client_list())


def test_one_connection_is_used_again_and_again_by_each_thread(client: "redis.Redis") -> None:
    lanes = RedisLanes(client, MODEL)
    for _ in range(5):
        lanes.look("w/0")
    assert scripts_connections(client) == 1

    def look(_: int) -> None:
        for n in range(100):
            assert lanes.wanted() is False
            lanes.announce(f"w{n}", 0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, range(4)))
    assert scripts_connections(client) <= 1 + 4


def test_connections_and_scripts_that_redis_ended_are_replaced_unnoticed(
    client: "redis.Redis",
) -> None:
    lanes = RedisLanes(client, MODEL)
    lanes.look("w/0")
    client.client_kill_filter(_type="normal", skipme=True)
    lanes.look("w/0")
    client.script_flush()
    lanes.look("w/0")


def test_an_error_of_a_script_leaves_its_connection_in_order(client: "redis.Redis") -> None:
    broken = client.register_script("return redis.call('no such command')")
    for _ in range(3):
        with pytest.raises(redis.ResponseError):
            broken()
    assert RedisLanes(client, MODEL).wanted() is False
    assert scripts_connections(client) == 1
