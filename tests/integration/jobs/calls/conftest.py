"""Every implementation of the call lanes passes the same tests."""

import pytest
import redis
from redis import Redis

from jobs import clock
from jobs.calls.keys import reply_key
from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import pack_deltas, pack_replies
from jobs.calls.redis import RedisLanes, connect
from tests.integration.jobs.calls.made import MODEL, Lanes
from tests.support.wait import PATIENCE_S


@pytest.fixture(params=["memory", "redis", "cluster"])
def unserved(request: pytest.FixtureRequest) -> Lanes:
    """Lanes that no worker has announced itself for."""
    return lanes_of(request)


def lanes_of(request: pytest.FixtureRequest) -> Lanes:
    """The implementation that the parameter names."""
    if request.param == "memory":
        memory = MemoryLanes(lambda: clock.monotonic() * 1000)

        def received(asker: str) -> list[bytes]:
            replies = [pack_replies(r, asker) for r in memory.replies.get(asker, [])]
            return replies + [pack_deltas(its) for its in memory.deltas.get(asker, [])]

        return Lanes(memory, received)
    if request.param == "cluster":
        cluster = connect(request.getfixturevalue("redis_cluster").url, timeout_s=PATIENCE_S)
        lanes = RedisLanes(cluster, MODEL)
        return Lanes(lanes, lambda asker: cluster.lrange(lanes.keys.replies(asker), 0, -1))
    client: redis.Redis = request.getfixturevalue("redis_client")
    return Lanes(RedisLanes(client, MODEL), lambda asker: client.lrange(reply_key(asker), 0, -1))


@pytest.fixture
def lanes(unserved: Lanes) -> Lanes:
    unserved.lanes.announce("worker-1", 60)
    return unserved


@pytest.fixture
def launched(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> Lanes:
    """Lanes of a pool that launched a moment ago, however slow the test is, and is idle again."""
    probe_after(monkeypatch, 1e9)
    assert lanes.take(rows=0, took_ms=0.0) == []
    return lanes


def probe_after(monkeypatch: pytest.MonkeyPatch, ms: float) -> None:
    """A pool that has launched nothing for so long is probed."""
    for module in ("redis", "memory"):
        monkeypatch.setattr(f"jobs.calls.{module}.PROBED_AFTER_MS", ms)


@pytest.fixture
def in_redis(redis_client: Redis) -> RedisLanes:
    lanes = RedisLanes(redis_client, MODEL)
    lanes.announce("worker-1", 60)
    return lanes
