"""The Celery worker: the transport of nudges, and the process that the models live in.

Celery brings a nudge to a thread; `SliceRunner.work` does the rest. The hosts come up as a
bootstep before the pool, and go down after it.
"""

import logging
import os
import threading
import warnings
from typing import Any

from celery import bootsteps
from celery.apps import worker as celery_worker
from celery.concurrency.thread import TaskPool
from celery.exceptions import SecurityWarning
from celery.signals import setup_logging, worker_shutting_down
from celery.worker.components import Pool

from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store.db import CONNECTION_ERRORS
from jobs.telemetry.metrics import exposition, record
from jobs.telemetry.tracing import export, spans
from workers.broker import WORK, NudgeConsumer, create_app
from workers.crash import end_process
from workers.device.model_host import CLAIMS_IN_HAND
from workers.device.monitoring.watchdog import LEFT_ANYWAY
from workers.process.runtime import Runtime

_SPARE_THREADS = 2  # for nudges that find nothing
_SHUTDOWN_S = 20.0


_log = logging.getLogger(__name__)


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


def _look_around() -> None:
    """Wakes Celery's loop, which would see a signal's flag only when its second is over."""


def _say_nothing(*_: Any) -> None:
    """In place of Celery's words on stdout, where a log would have two kinds of lines."""


def _keep_our_logging(**_: Any) -> None:
    """Celery sets up logging where nobody listens to this signal."""


def run_worker(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Slices in hand are given back after their launch."""
    record.start("worker", settings.metrics)
    exposition.serve(settings)
    export.start(settings, "worker")
    app = create_app(settings)
    file = ModelsFile(settings.models)
    # A version and the one that follows it, of every model.
    claims_in_hand = CLAIMS_IN_HAND * 2 * max(1, len(file.models.of_pool(settings.pool)))

    def deaf() -> None:
        worker.hub.call_soon(worker.consumer.cancel_task_queue, app.conf.task_default_queue)

    app.runtime = Runtime(settings, file, claims_in_hand, deaf)
    threads = claims_in_hand + _SPARE_THREADS
    app.steps["worker"].add(EngineStep)

    @app.task(name=WORK)  # type: ignore[untyped-decorator]
    def work() -> None:
        """A nudge: there is work. Goes on until there is none: the broker may be away by then."""
        try:
            while app.runtime.slices.work():
                pass
        except CONNECTION_ERRORS as error:
            _log.warning("a nudge came to nothing: %s", error)  # the keeper sends another

    def leave() -> None:
        """Beside Celery's own way out, which asks the broker first: that may be silent."""
        _log.info("told to end: no more work is taken")
        worker.hub.call_soon(_look_around)
        app.runtime.drain()
        worker.pool.executor.shutdown(cancel_futures=True)  # what is in hand is settled
        app.runtime.stop()
        spans.stop()
        os._exit(0)  # the interpreter takes long to say goodbye, and nothing is left to do

    def leaving(**_: Any) -> None:
        _leave_anyway()
        threading.Thread(target=leave).start()

    threading.excepthook = end_process
    celery_worker.safe_say = _say_nothing
    worker_shutting_down.connect(leaving, weak=False)
    setup_logging.connect(_keep_our_logging, weak=False)
    # Celery warns of pickle where root runs a worker; we take JSON alone.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = app.Worker(
        pool_cls=TaskPool,
        consumer_cls=NudgeConsumer,
        concurrency=threads,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        hostname=f"{settings.pool}-{os.getpid()}@%h",
    )
    worker.start()
