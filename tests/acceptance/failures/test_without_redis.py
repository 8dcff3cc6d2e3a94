"""Jobs are taken and run at no less than half their pace while Redis is away, frozen or full."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import redis

from jobs import clock
from ops.supervisor.platform import Platform
from tests.support.children import child_of, pid_of, stopped
from tests.support.models.paced import STEADY
from tests.support.pace import pace
from tests.support.platforms import spec
from tests.support.stores import broker_faults
from tests.support.stores.broker_faults import RedisBroker
from tests.support.wait import eventually

PLATFORM = spec(STEADY, lease_s=3.0 * pace())
ITEMS, JOBS = 400, 2  # of four seconds each, one after the other


@contextmanager
def dead(platform: Platform) -> Iterator[None]:
    """Nobody calls `platform.poll`, so it stays dead."""
    broker = RedisBroker(platform)
    broker.die()
    try:
        yield
    finally:
        broker.come_back()


@contextmanager
def frozen(platform: Platform) -> Iterator[None]:
    process = platform.servers.redis.process
    assert process
    with stopped(process.pid):
        yield


@contextmanager
def full(platform: Platform) -> Iterator[None]:
    with redis.Redis.from_url(platform.settings.redis_url) as client, broker_faults.full(client):
        with pytest.raises(redis.OutOfMemoryError):
            client.set("canary", "1")
        yield


@pytest.fixture(scope="module")
def usual_s(platform: Platform) -> float:
    return _seconds(platform)


@pytest.mark.parametrize("fault", [dead, frozen, full])
def test_jobs_are_taken_and_keep_half_their_pace(
    platform: Platform, usual_s: float, fault: Callable[[Platform], Iterator[None]]
) -> None:
    with fault(platform):
        took_s = _seconds(platform)
    # This machine may be busier now than it was.
    assert took_s < 2 * usual_s or took_s < 2 * _seconds(platform)


def test_a_nudge_that_redis_has_no_memory_to_record_ends_no_worker(platform: Platform) -> None:
    with ExitStack() as awake:
        with stopped(pid_of(platform)):
            RedisBroker(platform).nudge(times=5)
            awake.enter_context(full(platform))
        _seconds(platform, jobs=1)
    assert child_of(platform).alive()


def _seconds(platform: Platform, jobs: int = JOBS) -> float:
    """Runs jobs one after the other; returns how long they take."""
    since_s = clock.monotonic()
    with httpx.Client(base_url=platform.url) as http:
        for _ in range(jobs):
            items = [f"item {n}" for n in range(ITEMS)]
            posted = http.post("/jobs", json={"model": "steady", "items": items})
            assert posted.status_code == 202, posted.text
            path = f"/jobs/{posted.json()['id']}"
            eventually(lambda path=path: http.get(path).json()["state"] == "completed", every_s=0.1)
    return clock.monotonic() - since_s
