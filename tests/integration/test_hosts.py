"""What Redis hears of the models that come and go in one worker."""

import redis

from jobs.calls.redis import RedisLanes
from jobs.registry import SAMPLES
from jobs.settings import Settings
from workers.engines.echo import Echo
from workers.hosts import Hosts
from workers.progress import Progress

ECHO = SAMPLES.resolve("echo")


def test_one_that_has_left_says_nothing_of_the_one_that_came_after_it(
    redis_client: "redis.Redis",
) -> None:
    hosts = Hosts(Settings(), 1, redis_client, Progress())
    first, second = (hosts.make(ECHO, Echo(), lambda *_: 0) for _ in range(2))
    hosts.enter(first)
    first.drain()
    hosts.leave(first)
    hosts.enter(second)
    hosts.announce(first)  # by who had looked before
    assert RedisLanes(redis_client, ECHO.key).look("nobody/0").replicas == 1
    hosts.drain()
    hosts.stop()
