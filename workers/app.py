"""The Celery worker: the transport of nudges, and the process that the models live in.

Celery brings a nudge to a thread; `SliceRunner.work` does the rest. The hosts come up as a
bootstep before the pool, and go down after it.
"""

import logging
import os
import threading
import warnings
from typing import Any

from celery import Celery, bootsteps
from celery.concurrency.thread import TaskPool
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_shutting_down
from celery.worker.components import Pool
from kombu.exceptions import KombuError

from jobs import registry
from jobs.settings import Settings
from jobs.store.db import AWAY
from workers.dying import end_process
from workers.host import CLAIMS_IN_HAND
from workers.progress import LEFT_ANYWAY
from workers.runtime import Runtime

WORK = "millrace.work"
_SPARE_THREADS = 2  # for nudges that find nothing
_SHUTDOWN_S = 20.0


_log = logging.getLogger(__name__)


def queue_name(pool: str) -> str:
    return f"millrace.{pool}"


def create_app(settings: Settings) -> Celery:
    """The Celery app of one pool, for its workers and for the keeper that nudges them."""
    app = Celery("millrace", broker=settings.broker)
    redis_like = "redis" in settings.broker.split(":", 1)[0]
    transport = {
        "visibility_timeout": 60,
        # Look for what a dead worker left every second, not every hundred.
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
    }
    app.conf.update(
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_transport_options=transport if redis_like else {"confirm_publish": True},
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_default_queue=queue_name(settings.pool),
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
    )
    return app


class EngineStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Models up before the pool starts; down after it stopped."""

    def create(self, worker: Any) -> Runtime:
        runtime: Runtime = worker.app.runtime
        return runtime

    def start(self, worker: Any) -> None:
        worker.app.runtime.start()

    def close(self, worker: Any) -> None:
        worker.app.runtime.drain()

    def stop(self, worker: Any) -> None:
        worker.app.runtime.stop()

    terminate = stop


Pool.requires = (*Pool.requires, EngineStep)


def _leave_anyway(**_: Any) -> None:
    """A thread can't be killed: a launch that hangs must not keep the process for ever."""
    timer = threading.Timer(_SHUTDOWN_S, os._exit, args=(LEFT_ANYWAY,))
    timer.daemon = True
    timer.start()


def _keep_our_logging(**_: Any) -> None:
    """Celery sets up logging where nobody listens to this signal."""


def run_worker(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Slices in hand are given back after their launch."""
    app = create_app(settings)
    app.runtime = Runtime(settings, registry.load(settings.models))
    # A claim keeps its thread until its slices end: no model can take those of another.
    threads = CLAIMS_IN_HAND * len(app.runtime.models) + _SPARE_THREADS
    app.steps["worker"].add(EngineStep)

    @app.task(name=WORK)  # type: ignore[untyped-decorator]
    def work() -> None:
        """A nudge: there is work. Where there was some, there may be more."""
        try:
            if app.runtime.slices.work():
                app.send_task(WORK)
        except (*AWAY, KombuError) as error:
            _log.warning("a nudge came to nothing: %s", error)  # the keeper sends another

    def leaving(**_: Any) -> None:
        _leave_anyway()
        threading.Thread(target=app.runtime.drain).start()

    threading.excepthook = end_process
    worker_shutting_down.connect(leaving, weak=False)
    setup_logging.connect(_keep_our_logging, weak=False)
    # Celery warns of pickle where root runs a worker; we take JSON alone.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app.Worker(
        pool_cls=TaskPool,
        concurrency=threads,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        hostname=f"{settings.pool}-{os.getpid()}@%h",
    ).start()
