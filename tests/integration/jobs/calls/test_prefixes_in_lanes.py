"""Calls that begin alike wake the slot that has computed their beginning, where it has room."""

import orjson
import pytest
import redis

from jobs.calls import scripts
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.messages import Call
from jobs.calls.redis import RedisLanes, put_arguments
from jobs.models.inputs.prefix import prefix_digest
from tests.integration.jobs.calls.made import MODEL, ticket
from tests.integration.workers.generation.host_bench import Bench
from tests.support.wait import eventually

DIGEST = "0123456789abcdef"
HOLDER, SLOT = "worker-2", "worker-2/0"


@pytest.fixture
def lanes(redis_client: "redis.Redis") -> RedisLanes:
    made = RedisLanes(redis_client, MODEL)
    for worker in ("worker-1", HOLDER):
        made.announce(worker, 60)
    return made


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


def test_a_slot_that_holds_it_no_more_has_left_or_is_full_is_not_woken(
    lanes: RedisLanes, redis_client: "redis.Redis"
) -> None:
    lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], True)
    lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], False)
    put(lanes, redis_client)
    assert woken(lanes, redis_client) == (1, 0)
    lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], True)
    lanes.announce(HOLDER, 60, ready=False)
    redis_client.delete(lanes.keys.wakeups)
    put(lanes, redis_client)
    assert woken(lanes, redis_client) == (1, 0)
    lanes.announce(HOLDER, 60)
    redis_client.zadd(lanes.keys("busy"), {SLOT: 1e15})
    redis_client.delete(lanes.keys.wakeups)
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
    state = lanes.look("worker-1/0")
    assert [call.id for call in lanes.take(ticket(state, lane=lane_name({}, 0))) or ()] == ["a"]
