"""Calls that begin alike wake the slot that has computed their beginning, where it has room."""

from collections.abc import Callable

import orjson
import pytest
import redis

from jobs.calls import scripts
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.messages import Call
from jobs.calls.redis import RedisLanes, put_arguments
from jobs.models.inputs.prefix import prefix_digest
from tests.integration.jobs.calls.made import take
from tests.integration.workers.generation.host_bench import Bench
from tests.support.wait import eventually

DIGEST = "0123456789abcdef"
HOLDER, SLOT = "worker-2", "worker-2/0"


@pytest.fixture
def lanes(in_redis: RedisLanes) -> RedisLanes:
    in_redis.announce(HOLDER, 60)
    return in_redis


def put(lanes: RedisLanes, client: "redis.Redis", digest: str | None = DIGEST) -> None:
    """Queues a call with this beginning, like the api."""
    call = Call("a", lane_name({}, 0), "tenant", 1, 1, "api-1")
    bounds = {"target_ms": 250, "timeout_ms": 60_000, "most": 100}
    arguments = put_arguments(lanes.keys, call, **bounds, terms=Terms())
    keys = lanes.keys.all() + ([lanes.keys.prefix(digest)] if digest else [])
    assert client.register_script(scripts.PUT)(keys, arguments)[0] == b""


def woken(lanes: RedisLanes, client: "redis.Redis") -> tuple[int, int]:
    """Notifications for any slot, and for the holder's."""
    return client.llen(lanes.keys.wakeups), client.llen(lanes.keys.wake(SLOT))


def is_full(lanes: RedisLanes, client: "redis.Redis") -> None:
    client.zadd(lanes.keys("busy"), {SLOT: 1e15})


def test_the_slot_that_has_the_beginning_is_woken_in_place_of_any(
    lanes: RedisLanes, redis_client: "redis.Redis"
) -> None:
    lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], True)
    put(lanes, redis_client)
    assert woken(lanes, redis_client) == (0, 1)
    assert 0 < redis_client.ttl(lanes.keys.wake(SLOT)) <= 60
    assert 0 < redis_client.ttl(lanes.keys.prefix(DIGEST)) <= 60


@pytest.mark.parametrize("digest", [None, "another"])
def test_other_calls_wake_any(
    lanes: RedisLanes, redis_client: "redis.Redis", digest: str | None
) -> None:
    lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], True)
    put(lanes, redis_client, digest)
    assert woken(lanes, redis_client) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda lanes, client: lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], False),
        lambda lanes, client: lanes.announce(HOLDER, 60, ready=False),
        is_full,
    ],
    ids=["holds it no more", "has left", "is full"],
)
def test_a_slot_is_not_woken_that(
    lanes: RedisLanes, redis_client: "redis.Redis", change: Callable[..., None]
) -> None:
    lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], True)
    change(lanes, redis_client)
    put(lanes, redis_client)
    assert woken(lanes, redis_client) == (1, 0)


def test_a_host_holds_what_it_takes_while_most_of_it_is_free(redis_client: "redis.Redis") -> None:
    bench = Bench(redis_client, sequences=4)
    bench.start()
    try:
        words, lanes = "be kind to every guest, " * 30, bench.lanes
        one = bench.call("a", words + "who?", min_tokens=4000)
        digest = prefix_digest(one.tenant, one.adapter, orjson.dumps(one.input))
        assert digest
        key = lanes.keys.prefix(digest)
        eventually(lambda: redis_client.get(key))
        holder, slot = b"worker-1", b"worker-1/0"
        assert (redis_client.get(key) or b"").split()[:2] == [holder, slot]
        bench.call("b", words + "why?", min_tokens=4000)
        eventually(lambda: not redis_client.exists(key))
    finally:
        bench.stop()


def test_a_take_finds_the_call_in_any_case(lanes: RedisLanes, redis_client: "redis.Redis") -> None:
    lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], True)
    put(lanes, redis_client)
    assert [call.id for call in take(lanes, lane=lane_name({}, 0))] == ["a"]
