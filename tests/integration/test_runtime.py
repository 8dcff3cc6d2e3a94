"""A worker's pulse: when it is ready for calls, and when it is there."""

import redis

from jobs.calls.redis import RedisLanes
from jobs.registry import SAMPLES, Registry
from jobs.settings import Settings
from workers.runtime import Runtime


def test_a_worker_is_there_until_it_stops_and_ready_until_it_drains(
    settings: Settings, redis_client: "redis.Redis"
) -> None:
    echo = SAMPLES.resolve("echo")
    lanes = RedisLanes(redis_client, echo.key)
    runtime = Runtime(settings.evolve(lease_s=60), Registry([echo]))

    def pulse() -> tuple[int, int]:
        return lanes.look("s").replicas, redis_client.zcard(lanes.keys("alive"))

    runtime.start()
    assert pulse() == (1, 1)
    runtime.drain()
    assert pulse() == (0, 1)
    runtime.stop()
    assert pulse() == (0, 0)
