"""How nudges travel: Celery's app, the queue of a pool, and the ways a broker can fail.

A nudge is a hint, acknowledged as soon as a thread takes it. What it leads to is held by leases
in PostgreSQL, so a slice may take longer than any broker would wait for an acknowledgement
(RabbitMQ's consumer_timeout, Redis' visibility_timeout).
"""

import logging
from typing import Any, ClassVar

from amqp.exceptions import AMQPError
from celery import Celery
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown
from kombu import Connection, Exchange, Queue
from kombu.exceptions import KombuError
from redis import RedisError

from jobs.settings import Settings

WORK = "millrace.work"
AWAY = (KombuError, AMQPError, RedisError, OSError)
"""What kombu raises when the broker can't be reached, or refuses."""

_SILENT_S = 5  # a broker that takes longer to answer is away
_HEARTBEAT_S = 10  # RabbitMQ alone; two that are missed end the connection
_REST_S = 0.5  # between two tries to reach a broker that is away

_log = logging.getLogger(__name__)


def queue_of(pool: str) -> Queue:
    """The queue of a pool's nudges: a quorum queue on RabbitMQ; Redis knows one kind.

    On the default exchange, which needs no binding: there is none that an emptied Redis could lose.
    """
    name = f"millrace.{pool}"
    return Queue(name, Exchange(""), routing_key=name, queue_arguments={"x-queue-type": "quorum"})


def create_app(settings: Settings) -> Celery:
    """The Celery app of one pool, for its workers and for the keeper that nudges them."""
    app = Celery("millrace", broker=settings.broker)
    queue = queue_of(settings.pool)
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=_SILENT_S,
        broker_heartbeat=_HEARTBEAT_S,
        broker_transport_options=_transport_options(settings.broker),
        task_ignore_result=True,
        task_publish_retry=False,  # the keeper tries again by itself
        task_queues=[queue],
        task_default_queue=queue.name,
        worker_prefetch_multiplier=1,
        worker_enable_prefetch_count_reduction=False,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
    )
    return app


def _transport_options(broker: str) -> dict[str, Any]:
    if "redis" not in broker.partition(":")[0]:
        return {"confirm_publish": True, "read_timeout": _SILENT_S, "write_timeout": _SILENT_S}
    return {
        "visibility_timeout": 60,
        # Look for what a dead worker left every second, not every hundred.
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "socket_timeout": _SILENT_S,
        "socket_connect_timeout": _SILENT_S,
        "socket_keepalive": True,
    }


class NudgeConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer, less the 28 exchanges and queues that it declares on RabbitMQ for messages
    due later, and back as soon as the broker is: Celery's rests grow to half a minute, and end
    after a hundred tries."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        default_steps: ClassVar[list[str]] = [
            step for step in Consumer.Blueprint.default_steps if ":DelayedDelivery" not in step
        ]

    def ensure_connected(self, connection: Connection) -> Connection:
        said: list[str] = []

        def say(error: Exception, _: float) -> None:
            if str(error) not in said:
                said.append(str(error))
                _log.warning("the broker is out of reach: %s", error)

        return connection.ensure_connection(
            say,
            interval_start=_REST_S,
            interval_step=0,
            interval_max=_REST_S,
            callback=maybe_shutdown,
        )
