"""Lanes in which thousands of calls wait."""

from collections import Counter

import pytest
import redis

from jobs.calls.lanes import Terms
from jobs.calls.messages import Call
from jobs.calls.redis import RedisLanes
from tests.integration.jobs.calls.made import MODEL, ticket

ROWS = 10


@pytest.fixture
def in_redis(redis_client: "redis.Redis") -> RedisLanes:
    lanes = RedisLanes(redis_client, MODEL)
    lanes.announce("worker-1", 60)
    return lanes


def put(lanes: RedisLanes, tenant: str, calls: int, lane: str = "{}/64") -> None:
    """Calls of a tenant, each due later than the one before."""
    for n in range(calls):
        call = Call(f"{tenant}-{n}", lane, tenant, None, 1, "api-1")
        terms = {"target_ms": 1000 + n, "timeout_ms": 60_000, "most": 10_000}
        assert lanes.put(call, **terms, terms=Terms()) is None


def take(lanes: RedisLanes, rows: int = ROWS, lane: str = "{}/64") -> list[str]:
    found = lanes.take(ticket(lanes.look("nobody/0"), rows=rows, lane=lane))
    assert found is not None
    return [call.id for call in found]


def commands(client: "redis.Redis", *names: str) -> Counter[str]:
    """Number of these commands so far, those of scripts included."""
    found = client.info("commandstats")
    return Counter({name: found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names})


def test_of_one_tenant_the_first_are_taken_until_none_waits(in_redis: RedisLanes) -> None:
    put(in_redis, "a", 57)
    taken = [id for _ in range(6) for id in take(in_redis)]
    assert taken == [f"a-{n}" for n in range(57)]
    assert in_redis.look("nobody/0").lanes == []


def test_who_comes_beside_many_of_another_has_its_turn(in_redis: RedisLanes) -> None:
    put(in_redis, "a", 500)
    take(in_redis)
    put(in_redis, "b", 3)
    assert Counter(id[0] for id in take(in_redis)) == {"a": 7, "b": 3}
    assert [lane.rows for lane in in_redis.look("nobody/0").lanes] == [483]


def test_a_take_writes_of_those_it_takes_from_alone(
    in_redis: RedisLanes, redis_client: "redis.Redis"
) -> None:
    for n in range(200):
        put(in_redis, f"tenant{n}", 1)
    look = in_redis.look("nobody/0")
    before = commands(redis_client, "hset", "hget", "zrem")
    found = in_redis.take(ticket(look, rows=ROWS))
    assert len(found or ()) == ROWS
    used = commands(redis_client, "hset", "hget", "zrem") - before
    assert used["hset"] < 2 * ROWS
    assert used["hget"] < 220 + 3 * ROWS


def test_each_of_many_tenants_is_taken_once_before_any_is_again(in_redis: RedisLanes) -> None:
    for n in range(50):
        put(in_redis, f"tenant{n}", 3)
    taken = [id.partition("-")[0] for _ in range(15) for id in take(in_redis)]
    for turn in range(3):
        assert len(set(taken[50 * turn : 50 * turn + 50])) == 50


def test_a_look_at_two_lanes_tells_whose_turn_it_is(in_redis: RedisLanes) -> None:
    """A lane of one tenant is judged without reading all that wait in it."""
    put(in_redis, "a", 300)
    put(in_redis, "a2", 1)
    take(in_redis, 100)
    put(in_redis, "b", 300, lane="{}/16")
    turns = {lane.lane: lane.turn for lane in in_redis.look("nobody/0").lanes}
    assert turns["{}/16"] < turns["{}/64"]
