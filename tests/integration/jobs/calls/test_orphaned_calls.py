"""Calls whose api process died: they run on for a while, and are dropped if nobody comes back."""

import pytest
from redis import Redis

from jobs.calls import scripts
from jobs.calls.lanes import API_ALIVE_S, API_SILENT
from jobs.calls.messages import Call, unpack_replies
from jobs.calls.redis import RedisLanes
from jobs.calls.scripts import ATTEND
from jobs.calls.streams.resumption import attend_arguments
from tests.integration.jobs.calls import made
from tests.integration.jobs.calls.made import MODEL, enqueue

API = "api-1"
NOW = "now of the test"


@pytest.fixture
def lanes(redis_client: Redis, monkeypatch: pytest.MonkeyPatch) -> RedisLanes:
    """Lanes for which it is one moment when they look for such calls, however slow the test is."""
    redis_client.rpush(NOW, *redis_client.time())
    its = scripts.RECOVER.replace("redis.call('TIME')", f"redis.call('LRANGE', '{NOW}', 0, -1)")
    assert its != scripts.RECOVER
    monkeypatch.setattr(scripts, "RECOVER", its)
    lanes = RedisLanes(redis_client, MODEL)
    lanes.announce("worker-1", 60)
    return lanes


def ago_ms(client: Redis, seconds: float) -> float:
    """The time so long before that moment."""
    moment_s, micros = map(float, client.lrange(NOW, 0, -1))
    return moment_s * 1000 + micros / 1000 - seconds * 1000


def stored(lanes: RedisLanes, client: Redis) -> bytes:
    found = client.hget(lanes.keys("calls"), "a")
    assert isinstance(found, bytes)
    return found


def take(lanes: RedisLanes, client: Redis, resume_within_s: int = 0, ago_s: float = 100.0) -> Call:
    """Puts a call that streams, as if it had come so long ago, and has a worker take it."""
    how = {"stream": True, "resume_within_s": resume_within_s}
    enqueue(lanes, Call("a", "{}/64", "tenant", {"text": "x"}, 3, API, **how))  # type: ignore[arg-type]
    [taken] = made.take(lanes)
    _, rest = stored(lanes, client).split(b" ", 1)
    client.hset(lanes.keys("calls"), "a", b"%.3f " % ago_ms(client, ago_s) + rest)
    return taken


def attend(
    lanes: RedisLanes, client: Redis, ago_s: float, looked_ago_s: float = API_ALIVE_S + 0.5
) -> None:
    """Tells that the api process lives, and lets it die so long ago. looked_ago_s: since the look
    before."""
    client.eval(ATTEND, len(lanes.keys.all()), *lanes.keys.all(), *attend_arguments(API, ()))
    client.zadd(lanes.keys("apis"), {API: ago_ms(client, ago_s)})
    client.hset(lanes.keys("pool"), "looked", ago_ms(client, looked_ago_s))


def dropped(lanes: RedisLanes) -> list[str]:
    assert lanes.recover() == 0
    return lanes.wait_for_dropped("worker-1", 0.05)


@pytest.mark.parametrize(
    ("within_s", "ago_s", "ends"),
    [(0, 31, True), (0, 10, False), (0, -3, False), (60, 35, False), (60, 61, True), (5, 6, True)],
)
def test_a_call_is_dropped_once_its_api_is_gone_for_longer_than_it_may_be_resumed(
    lanes: RedisLanes, redis_client: Redis, within_s: int, ago_s: float, ends: bool
) -> None:
    call = take(lanes, redis_client, within_s)
    attend(lanes, redis_client, ago_s)
    assert dropped(lanes) == ([call.id] if ends else [])
    for kept in ("calls", "taken"):
        assert redis_client.hexists(lanes.keys(kept), call.id) != ends
    told = [unpack_replies(reply) for reply in redis_client.lrange(lanes.keys.replies(API), 0, -1)]
    assert told == ([[(call.id, None, list(API_SILENT), 0, {})]] if ends else [])


@pytest.mark.parametrize("looked_ago_s", [40, 1])
def test_an_api_that_could_not_be_heard_since_the_look_before_is_heard_first(
    lanes: RedisLanes, redis_client: Redis, looked_ago_s: float
) -> None:
    call = take(lanes, redis_client)
    attend(lanes, redis_client, 36, looked_ago_s)
    assert dropped(lanes) == []
    assert dropped(lanes) == []
    attend(lanes, redis_client, 36)
    assert dropped(lanes) == [call.id]


def test_a_call_of_an_api_that_never_told_of_itself_or_that_another_has_now_runs_on(
    lanes: RedisLanes, redis_client: Redis
) -> None:
    call = take(lanes, redis_client)
    assert dropped(lanes) == []
    moved = stored(lanes, redis_client).replace(API.encode(), b"api-2")
    redis_client.hset(lanes.keys("calls"), call.id, moved)
    lanes.drop(call)
    assert redis_client.hexists(lanes.keys("calls"), call.id)
    assert lanes.wait_for_dropped("worker-1", 0.05) == []


@pytest.mark.parametrize(("ago_s", "ends"), [(0, False), (34, False), (36, True)])
def test_a_call_shows_that_its_api_lived_when_it_came(
    lanes: RedisLanes, redis_client: Redis, ago_s: float, ends: bool
) -> None:
    """Of a model that isn't called often: its api has told nothing since the call before."""
    call = take(lanes, redis_client, ago_s=ago_s)
    attend(lanes, redis_client, 600)
    assert dropped(lanes) == ([call.id] if ends else [])
