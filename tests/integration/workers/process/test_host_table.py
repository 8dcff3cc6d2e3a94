"""Announcements of models that a worker adds and removes."""

from dataclasses import replace

import pytest
import redis

from jobs.calls.keys import Keys
from jobs.calls.redis import RedisLanes
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines.echo import Echo
from workers.process.host_table import HostTable

ECHO = SAMPLES.resolve("echo")


def test_one_that_leaves_is_there_until_its_launches_have_ended(
    redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = HostTable(Settings(), 1, redis_client, LaunchDeadline())
    host, alive = hosts.create(ECHO, Echo(), lambda *_: 0), Keys(ECHO.key)("alive")
    hosts.add(host)
    stop, renewed = host.stop, list[bool]()

    def stop_slowly() -> None:
        redis_client.delete(alive)  # the lease that it had is over
        hosts.announce_all()
        renewed.append(bool(redis_client.exists(alive)))
        stop()

    monkeypatch.setattr(host, "stop", stop_slowly)
    host.drain()
    hosts.remove(host)
    assert renewed == [True]
    assert not redis_client.exists(alive)
    assert not hosts.by_key


def test_one_that_left_says_nothing_of_the_one_that_came_next(redis_client: "redis.Redis") -> None:
    hosts = HostTable(Settings(), 1, redis_client, LaunchDeadline())
    first, second = (hosts.create(ECHO, Echo(), lambda *_: 0) for _ in range(2))
    hosts.add(first)
    first.drain()
    hosts.remove(first)
    hosts.add(second)
    hosts.announce(first)  # by who had looked before
    assert RedisLanes(redis_client, ECHO.key).look("nobody/0").replicas == 1
    hosts.drain()
    hosts.stop()


def test_many_idle_models_look_for_calls_less_often_each(redis_client: "redis.Redis") -> None:
    """Together as often as thirty."""
    hosts = HostTable(Settings(), 1, redis_client, LaunchDeadline())
    models = [replace(ECHO, name=f"model-{n}") for n in range(40)]
    made = [hosts.create(model, Echo(), lambda *_: 0) for model in models]
    waits_s = []
    for host in made:
        hosts.add(host)
        waits_s.append(hosts.pace.idle_wait_s)
    assert (waits_s[0], waits_s[19], waits_s[39]) == (3.0, 3.0, 4.0)
    hosts.drain()
    hosts.stop()
