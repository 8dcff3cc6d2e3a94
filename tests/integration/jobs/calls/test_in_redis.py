"""Lanes in Redis alone: keys, the bell, scripts, and many calls."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest
from redis import Redis

from jobs.calls import scripts
from jobs.calls.keys import reply_key
from jobs.calls.lanes import ALONE, Terms, lane_name
from jobs.calls.messages import (
    FRAMED,
    Call,
    ChoiceDelta,
    Delta,
    Reply,
    unpack_deltas,
    unpack_replies,
)
from jobs.calls.redis import RECOVERED, REPLY_TTL_S, RedisLanes, declare_dead, put_arguments
from jobs.calls.streams.log import KEPT_S, Progress
from jobs.calls.streams.rollout import StreamReader
from jobs.models.inputs.prefix import prefix_digest
from tests.integration.jobs.calls.made import MODEL, enqueue, take
from tests.integration.workers.generation.host_bench import Bench
from tests.support.wait import eventually


def put(lanes: RedisLanes, *ids: str) -> None:
    for id in ids:
        enqueue(lanes, Call(id, "{}/64", "tenant", 1, 1, "api-1"))


@pytest.fixture
def rings(in_redis: RedisLanes, redis_client: Redis) -> Callable[[], int]:
    """Takes what rang the bell since it was asked last; returns how often that was."""

    def since() -> int:
        found = redis_client.llen(in_redis.keys.wakeups)
        redis_client.delete(in_redis.keys.wakeups)
        return int(found)

    return since


def test_many_calls_ring_once_and_a_taker_that_leaves_some_behind_rings_for_the_next(
    in_redis: RedisLanes, rings: Callable[[], int]
) -> None:
    put(in_redis, "a", "b")
    assert rings() == 1
    for left in (1, 0):
        take(in_redis, rows=1)
        assert rings() == left


def test_a_launch_of_items_rings_for_calls(in_redis: RedisLanes, rings: Callable[[], int]) -> None:
    put(in_redis, "a")
    in_redis.watch("worker-1/0", in_redis.look("nobody/0").now_ms + 60_000, 2)
    rings()
    take(in_redis, rows=0, lane="")
    assert rings() == 1


def test_who_leaves_rings_for_others(in_redis: RedisLanes, rings: Callable[[], int]) -> None:
    in_redis.announce("worker-2", 60)
    for left in (0, 1):
        in_redis.announce("worker-1", 0)
        assert rings() == left
        put(in_redis, "a")
        rings()  # a slot heard it, and stopped


def test_nothing_of_an_answered_call_stays_in_redis_but_that_it_was(
    in_redis: RedisLanes, redis_client: Redis
) -> None:
    put(in_redis, "a")
    [call] = take(in_redis)
    in_redis.reply("api-1", [Reply(call.id, b"1", None, 1, {})])
    kept = set(redis_client.scan_iter()) - {in_redis.keys.wakeups.encode()}
    ours = {in_redis.keys(what).encode() for what in ("ready", "alive", "pool", "busy", "used")}
    assert kept == ours | {reply_key("api-1").encode()}


def test_a_reply_reaches_a_redis_that_has_lost_everything_and_is_forgotten_in_time(
    in_redis: RedisLanes, redis_client: Redis
) -> None:
    put(in_redis, "a")
    take(in_redis)
    redis_client.flushall()
    redis_client.script_flush()
    in_redis.reply("api-1", [Reply("a", b"1", None, 1, {})])
    assert redis_client.llen(reply_key("api-1")) == 1
    assert 0 < redis_client.ttl(reply_key("api-1")) <= REPLY_TTL_S
    assert in_redis.recover() == 0


def test_calls_of_a_rollout_whose_worker_died_are_recorded_once_as_failed(
    in_redis: RedisLanes, redis_client: Redis
) -> None:
    cohorts = "canary#r#ann", "canary#r#bob", "canary#r#ann", "stable#r", "missed#r", ""
    for n, cohort in enumerate(cohorts):
        enqueue(in_redis, Call(f"{n}", "{}/64", "tenant", "x", 1, "api-1", cohort=cohort))
    reader = StreamReader(redis_client, "r")
    assert len(take(in_redis, rows=6)) == 6
    assert in_redis.recover() == 0
    declare_dead(redis_client, [MODEL], "worker-1")
    found = reader.read()
    canary = {(one.unit, one.calls, one.failed) for one in found if one.lane == "canary"}
    assert canary == {("ann", 2, 2), ("bob", 1, 1)}
    assert sum(one.launches for one in found if one.lane == "canary") == 1
    assert [(one.launches, one.failed) for one in found if one.lane == "stable"] == [(1, 1)]
    assert len(found) == 3
    in_redis.announce("worker-1", 60)
    assert len(take(in_redis, rows=6, lane=f"{ALONE}{{}}/64")) == 6
    declare_dead(redis_client, [MODEL], "worker-1")
    assert not reader.read()


def test_a_launch_of_more_calls_than_lua_takes_arguments_is_answered(
    in_redis: RedisLanes, redis_client: Redis
) -> None:
    ids = [f"call-{n}" for n in range(10_001)]
    redis_client.hset(in_redis.keys("calls"), mapping=dict.fromkeys(ids, "x"))
    in_redis.reply("api-1", [Reply(id, b"1", None, 1, {}) for id in ids])
    assert not redis_client.exists(in_redis.keys("calls"))


def test_a_call_of_any_input_and_parameters_is_put_back_as_it_was(
    in_redis: RedisLanes, redis_client: Redis
) -> None:
    lane = lane_name({"a b": "\n\0 ü %s", "c": ["alone:"]}, 64)
    call = Call("a", lane, "tenant", {"x\n y": ["\0 %d", "x" * 300_000]}, 3, "api-1")
    enqueue(in_redis, call)
    [before] = take(in_redis, lane=lane)
    assert (before.lane, before.input) == (call.lane, call.input)
    declare_dead(redis_client, [MODEL], "worker-1")
    [after] = take(in_redis, lane=ALONE + lane)
    assert after == replace(before, lane=ALONE + lane)


def test_calls_of_a_worker_that_was_killed_from_outside_are_where_they_were_however_often(
    in_redis: RedisLanes, redis_client: Redis
) -> None:
    put(in_redis, "a")
    for deaths in range(1, 5):
        assert [call.lane for call in take(in_redis)] == ["{}/64"]
        declare_dead(redis_client, [MODEL], "worker-1", spared=[MODEL])
        assert redis_client.get(RECOVERED) == b"%d" % deaths
        in_redis.announce("worker-1", 60)


def test_calls_put_back_ring_the_bell(
    in_redis: RedisLanes, redis_client: Redis, rings: Callable[[], int]
) -> None:
    put(in_redis, "a")
    take(in_redis)
    rings()
    declare_dead(redis_client, [MODEL], "worker-1")
    assert rings() == 1


def test_the_lanes_of_two_models_are_apart(in_redis: RedisLanes, redis_client: Redis) -> None:
    other = RedisLanes(redis_client, "model@2")
    other.announce("worker-1", 60)
    put(in_redis, "a")
    assert list(other.look("nobody/0").lanes) == []
    assert take(other) == []


# -- logs


@pytest.mark.parametrize(
    ("ended", "adapter", "owned"),
    [(True, "", b"acme"), (True, "legal", b"acme\nlegal"), (False, "", None)],
)
def test_a_log_lives_a_while_longer_than_its_call_and_ends_with_its_reply(
    in_redis: RedisLanes, redis_client: Redis, ended: bool, adapter: str, owned: bytes
) -> None:
    call = Call("a", "{}/64", "acme", None, 1, f"api-1{FRAMED}", stream=True, adapter=adapter)
    enqueue(in_redis, call)
    [taken] = take(in_redis)
    in_redis.stream([Progress(taken, Delta("a", 0, (ChoiceDelta(0, "so"),)), b"1")])
    if ended:
        in_redis.end([(taken, Reply("a", b"1", None, 1, {}, "acme", adapter=adapter))])
    left_s = redis_client.ttl(in_redis.keys.log("a"))
    assert 0 < left_s - (0 if ended else 60) <= KEPT_S
    entries = redis_client.lrange(in_redis.keys.log("a"), 0, -1)
    assert unpack_deltas(entries[0])[0].choices[0].text == "so"
    owner = redis_client.get(in_redis.keys("owner:a"))
    assert (len(entries), owner) == (2 if ended else 1, owned)
    assert not ended or unpack_replies(entries[1])[0][:2] == ("a", b"1")


def test_deltas_and_the_end_go_to_the_api_that_has_taken_the_call_over(
    in_redis: RedisLanes, redis_client: Redis
) -> None:
    call = Call("a", "{}/64", "acme", None, 1, "api-1", stream=True)
    enqueue(in_redis, call)
    [taken] = take(in_redis)
    head, _, rest = redis_client.hget(in_redis.keys("calls"), "a").partition(b"\n")
    moved = head.replace(b"api-1", b"api-2") + b"\n" + rest
    redis_client.hset(in_redis.keys("calls"), "a", moved)
    in_redis.stream([Progress(taken, Delta("a", 0, (ChoiceDelta(0, "so"),)))])
    in_redis.end([(taken, Reply("a", b"1", None, 1, {}))])
    assert redis_client.llen(reply_key("api-2")) == 2
    assert not redis_client.exists(reply_key("api-1"))


# -- lanes in which thousands of calls wait


def put_many(lanes: RedisLanes, tenant: str, calls: int, lane: str = "{}/64") -> None:
    """Calls of a tenant, each due later than the one before."""
    for n in range(calls):
        call = Call(f"{tenant}-{n}", lane, tenant, None, 1, "api-1")
        enqueue(lanes, call, target_ms=1000 + n)


def take_ids(lanes: RedisLanes, rows: int = 10) -> list[str]:
    return [call.id for call in take(lanes, rows=rows)]


def commands(client: Redis, *names: str) -> Counter[str]:
    """Number of these commands so far, those of scripts included."""
    found = client.info("commandstats")
    return Counter({name: found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names})


def test_of_one_tenant_the_first_are_taken_until_none_waits(in_redis: RedisLanes) -> None:
    put_many(in_redis, "a", 57)
    taken = [id for _ in range(6) for id in take_ids(in_redis)]
    assert taken == [f"a-{n}" for n in range(57)]
    assert in_redis.look("nobody/0").lanes == []


def test_who_comes_beside_many_of_another_has_its_turn(in_redis: RedisLanes) -> None:
    put_many(in_redis, "a", 500)
    take_ids(in_redis)
    put_many(in_redis, "b", 3)
    assert Counter(id[0] for id in take_ids(in_redis)) == {"a": 7, "b": 3}
    assert [lane.rows for lane in in_redis.look("nobody/0").lanes] == [483]


def test_a_take_writes_of_few_tenants(in_redis: RedisLanes, redis_client: Redis) -> None:
    for n in range(200):
        put_many(in_redis, f"tenant{n}", 1)
    before = commands(redis_client, "hset", "hget")
    assert len(take(in_redis, rows=10)) == 10
    used = commands(redis_client, "hset", "hget") - before
    assert used["hset"] < 20
    assert used["hget"] < 250


def test_each_of_many_tenants_is_taken_once_before_any_is_again(in_redis: RedisLanes) -> None:
    for n in range(50):
        put_many(in_redis, f"tenant{n}", 3)
    taken = [id.partition("-")[0] for _ in range(15) for id in take_ids(in_redis)]
    for turn in range(3):
        assert len(set(taken[50 * turn : 50 * turn + 50])) == 50


def test_a_look_at_two_lanes_tells_whose_turn_it_is(in_redis: RedisLanes) -> None:
    """A lane of one tenant is judged without reading all that wait in it."""
    put_many(in_redis, "a", 300)
    put_many(in_redis, "a2", 1)
    take(in_redis, rows=100)
    put_many(in_redis, "b", 300, lane="{}/16")
    turns = {lane.lane: lane.turn for lane in in_redis.look("nobody/0").lanes}
    assert turns["{}/16"] < turns["{}/64"]


# -- calls that begin alike wake the slot that has computed their beginning, where it has room

DIGEST = "0123456789abcdef"
HOLDER, SLOT = "worker-2", "worker-2/0"


class Alike:
    """Lanes with a second worker, whose slot holds the beginning of a call."""

    def __init__(self, lanes: RedisLanes, client: Redis) -> None:
        self.lanes, self.client = lanes, client
        lanes.announce(HOLDER, 60)
        lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], True)

    def put(self, digest: str | None = DIGEST) -> None:
        """Queues a call with this beginning, like the api."""
        call, keys = Call("a", lane_name({}, 0), "tenant", 1, 1, "api-1"), self.lanes.keys
        bounds = {"target_ms": 250, "timeout_ms": 60_000, "most": 100}
        arguments = put_arguments(keys, call, **bounds, terms=Terms())
        named = keys.all() + ([keys.prefix(digest)] if digest else [])
        assert self.client.register_script(scripts.PUT)(named, arguments)[0] == b""

    def woken(self) -> tuple[int, int]:
        """Notifications for any slot, and for the holder's."""
        keys = self.lanes.keys
        return self.client.llen(keys.wakeups), self.client.llen(keys.wake(SLOT))


@pytest.fixture
def alike(in_redis: RedisLanes, redis_client: Redis) -> Alike:
    return Alike(in_redis, redis_client)


def test_the_slot_that_has_the_beginning_is_woken_in_place_of_any(alike: Alike) -> None:
    alike.put()
    assert alike.woken() == (0, 1)
    for key in (alike.lanes.keys.wake(SLOT), alike.lanes.keys.prefix(DIGEST)):
        assert 0 < alike.client.ttl(key) <= 60


@pytest.mark.parametrize("digest", [None, "another"])
def test_other_calls_wake_any(alike: Alike, digest: str | None) -> None:
    alike.put(digest)
    assert alike.woken() == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda its: its.lanes.hold_prefixes(HOLDER, SLOT, [DIGEST], False),
        lambda its: its.lanes.announce(HOLDER, 60, ready=False),
        lambda its: its.client.zadd(its.lanes.keys("busy"), {SLOT: 1e15}),
    ],
    ids=["holds it no more", "has left", "is full"],
)
def test_a_slot_is_not_woken_that(alike: Alike, change: Callable[[Alike], None]) -> None:
    change(alike)
    alike.put()
    assert alike.woken() == (1, 0)


def test_a_take_finds_the_call_in_any_case(alike: Alike) -> None:
    alike.put()
    assert [call.id for call in take(alike.lanes, lane=lane_name({}, 0))] == ["a"]


def test_a_host_holds_what_it_takes_while_most_of_it_is_free(redis_client: Redis) -> None:
    bench = Bench(redis_client, sequences=4, step_ms=20.0)  # both calls run for a minute
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
