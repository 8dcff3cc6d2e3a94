"""Faults of a broker, by the same methods for each kind that Millrace takes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from kombu import Connection

from ops.supervisor.platform import Platform
from tests.support.stores.rabbitmq import Rabbit
from tests.support.wait import eventually
from workers.broker import WORK, create_app, queue_of


@contextmanager
def full(client: "redis.Redis") -> Iterator[None]:
    """Redis answers reads, and `-OOM command not allowed` to writes."""
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


class _Broker:
    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    def nudge(self, times: int) -> None:
        app = create_app(self.platform.settings)
        with app.connection_for_write() as connection:
            for _ in range(times):
                app.send_task(WORK, connection=connection)

    def waiting(self) -> int:
        """Nudges in the queue."""
        with Connection(self.platform.settings.broker) as connection:
            queue = queue_of(self.platform.settings.pool)(connection.default_channel)
            return int(queue.queue_declare().message_count)


class RedisBroker(_Broker):
    def lose_everything(self) -> None:
        """Loses all nudges at once, and whatever else it knew as well."""
        with redis.Redis.from_url(self.platform.settings.redis_url) as client:
            client.flushall()

    def signal(self, number: signal.Signals) -> None:
        process = self.platform.servers.redis.process
        assert process is not None
        process.send_signal(number)

    def die(self) -> None:
        self.signal(signal.SIGKILL)

    def come_back(self) -> None:
        """Empty: it keeps nothing on disk."""
        servers = self.platform.servers
        eventually(lambda: (servers.poll(), servers.redis.alive())[1])


class RabbitBroker(_Broker):
    def __init__(self, platform: Platform, rabbit: Rabbit) -> None:
        super().__init__(platform)
        self.signal, self.die = rabbit.signal, rabbit.kill
        self.come_back = rabbit.start  # with its messages: a quorum queue is on disk

    def lose_everything(self) -> None:
        with Connection(self.platform.settings.broker) as connection:
            queue_of(self.platform.settings.pool)(connection.default_channel).purge()


Broker = RedisBroker | RabbitBroker
"""The broker of a platform that runs."""
