"""The client of the lanes sends scripts past redis-py's pool, and outlives its connections."""

import threading
from collections.abc import Iterator

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


def test_one_connection_is_used_again_and_again(client: "redis.Redis") -> None:
    lanes = RedisLanes(client, MODEL)
    for _ in range(5):
        lanes.look("w/0")
    assert scripts_connections(client) == 1


def test_threads_have_connections_of_their_own(client: "redis.Redis") -> None:
    lanes, failures = RedisLanes(client, MODEL), list[Exception]()

    def look() -> None:
        try:
            for n in range(100):
                assert lanes.wanted() is False
                lanes.announce(f"w{n}", 0)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert scripts_connections(client) <= 4


def test_a_connection_that_redis_ended_is_replaced_unnoticed(client: "redis.Redis") -> None:
    lanes = RedisLanes(client, MODEL)
    lanes.look("w/0")
    client.client_kill_filter(_type="normal", skipme=True)
    lanes.look("w/0")


def test_an_error_of_a_script_leaves_its_connection_in_order(client: "redis.Redis") -> None:
    broken = client.register_script("return redis.call('no such command')")
    for _ in range(3):
        with pytest.raises(redis.ResponseError):
            broken()
    assert RedisLanes(client, MODEL).wanted() is False
    assert scripts_connections(client) == 1


def test_scripts_that_redis_forgot_are_loaded_again(client: "redis.Redis") -> None:
    lanes = RedisLanes(client, MODEL)
    lanes.look("w/0")
    client.script_flush()
    lanes.look("w/0")
