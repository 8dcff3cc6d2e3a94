"""Faults of a broker, behind one interface for each kind that Millrace takes."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable

import redis
from kombu import Connection

from ops.supervisor.platform import Platform
from tests.support.stores.rabbitmq import Rabbit
from tests.support.wait import eventually
from workers.broker import WORK, create_app, queue_of


class Broker(ABC):
    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    @abstractmethod
    def lose_everything(self) -> None:
        """All nudges at once; for Redis whatever else it knew as well."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None: ...

    @abstractmethod
    def die(self) -> None: ...

    @abstractmethod
    def come_back(self) -> None: ...

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


class RedisBroker(Broker):
    def lose_everything(self) -> None:
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
        self.platform.servers.poll()


class RabbitBroker(Broker):
    def __init__(self, platform: Platform, rabbit: Rabbit) -> None:
        super().__init__(platform)
        self._rabbit = rabbit

    def lose_everything(self) -> None:
        with Connection(self.platform.settings.broker) as connection:
            queue_of(self.platform.settings.pool)(connection.default_channel).purge()

    def signal(self, number: signal.Signals) -> None:
        self._rabbit.signal(number)

    def die(self) -> None:
        self._rabbit.kill()

    def come_back(self) -> None:
        """Starts it with its messages: a quorum queue is on disk."""
        self._rabbit.start()


def keep_losing(broker: Broker, until: Callable[[], bool]) -> None:
    """Loses everything, again and again."""

    def lost_and_over() -> bool:
        broker.lose_everything()
        return until()

    eventually(lost_and_over)
