"""Transport of nudges: Celery's app, the queue of a pool, and the errors of a broker.

A nudge is a hint, acknowledged as soon as a thread takes it. Leases in PostgreSQL hold the work, so
a slice may take longer than any broker waits for an acknowledgement (RabbitMQ's consumer_timeout,
Redis' visibility_timeout).
"""

from typing import Any
from urllib.parse import urlencode

from amqp.exceptions import AMQPError
from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import KombuError
from redis import RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobs.calls.clients.sentinel import SentinelAddress, is_sentinel
from jobs.settings import Settings

WORK = "millrace.work"
CONNECTION_ERRORS = (KombuError, AMQPError, RedisError, OSError)
"""Errors of kombu when the broker can't be reached, or refuses."""

_TIMEOUT_S = 5  # a broker that takes longer to answer is away
_HEARTBEAT_S = 10  # RabbitMQ alone; two that are missed end the connection


def queue_of(pool: str) -> Queue:
    """Returns the queue of a pool's nudges: a quorum queue on RabbitMQ; Redis knows one kind.

    It is on the default exchange, which needs no binding that an emptied Redis could lose.
    """
    name = f"millrace.{pool}"
    return Queue(name, Exchange(""), routing_key=name, queue_arguments={"x-queue-type": "quorum"})


def create_app(settings: Settings) -> Celery:
    """Returns the Celery app of one pool, for its workers and for the keeper that nudges them."""
    broker, options = _connection(settings.broker)
    app = Celery("millrace", broker=broker)
    queue = queue_of(settings.pool)
    app.conf.update(
        accept_content=["json"],
        broker_channel_error_retry=True,  # Redis without memory refuses nudges, and stays
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=_TIMEOUT_S,
        broker_heartbeat=_HEARTBEAT_S,
        broker_transport_options=options,
        task_ignore_result=True,
        task_publish_retry=False,  # the keeper tries again itself
        task_queues=[queue],
        task_default_queue=queue.name,
        worker_prefetch_multiplier=1,
        worker_enable_prefetch_count_reduction=False,
        worker_hijack_root_logger=False,
        # On RabbitMQ each worker would leave a queue of its own there.
        worker_enable_remote_control=_is_redis(settings.broker),
        worker_send_task_events=False,
    )
    return app


def _is_redis(broker: str) -> bool:
    return "redis" in broker.partition(":")[0]


def _connection(broker: str) -> tuple[str, dict[str, Any]]:
    """Returns the address as kombu spells it, and the options of its transport."""
    options = _transport_options(broker)
    if not is_sentinel(broker):
        return broker, options
    address, retry = SentinelAddress.parse(broker), Retry(NoBackoff(), 0)
    options["master_name"] = address.service
    options["sentinel_kwargs"] = address.asking(_TIMEOUT_S, retry)
    db, tls = address.options.get("db", 0), urlencode(address.tls)
    urls = [f"sentinel://{address.login}{host}/{db}?{tls}" for host in address.netlocs]
    return ";".join(urls), options


def _transport_options(broker: str) -> dict[str, Any]:
    if not _is_redis(broker):
        return {"confirm_publish": True, "read_timeout": _TIMEOUT_S, "write_timeout": _TIMEOUT_S}
    return {
        "visibility_timeout": 60,
        # Restores the messages of a dead worker after 5 s, not after a hundred.
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": _TIMEOUT_S,
        "socket_connect_timeout": _TIMEOUT_S,
        "socket_keepalive": True,
    }
