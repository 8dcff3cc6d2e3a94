"""Celery worker: the transport of nudges, and the process that holds the models.

Celery brings a nudge to a thread, and `SliceRunner.work` does the rest. A bootstep starts the
runtime before the pool of threads, and stops it after.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery import bootsteps
from celery.concurrency.thread import TaskPool

from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.telemetry.metrics import exposition, record
from jobs.telemetry.tracing import export, spans
from workers import celery_patches
from workers.broker import WORK, create_app
from workers.crash import end_process
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT
from workers.device.monitoring.watchdog import FORCED_EXIT_CODE
from workers.process.runtime import Runtime

_SPARE_THREADS = 2  # for nudges that find nothing

SHUTDOWN_S = 20.0
"""Launches that outlast this after a signal are cut short."""

_log = logging.getLogger(__name__)


class RuntimeStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts the runtime before the pool of threads, and stops it after."""

    def create(self, worker: Any) -> Runtime:
        """Returns the runtime, which Celery keeps."""
        runtime: Runtime = worker.app.runtime
        return runtime

    def start(self, worker: Any) -> None:
        """Registers the worker and starts its threads."""
        worker.app.runtime.start()

    def close(self, worker: Any) -> None:
        """Takes no more work."""
        worker.app.runtime.drain()

    def stop(self, worker: Any) -> None:
        """Ends once slices in flight are settled."""
        worker.app.runtime.stop()

    terminate = stop


celery_patches.start_before_pool(RuntimeStep)


def run_worker(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Slices in flight are given back after their launch."""
    record.start("worker", settings.metrics)
    exposition.serve(settings)
    export.start(settings, "worker")
    app = create_app(settings)
    file = ModelsFile(settings.models)
    # Twice: a version and the one that follows it, of every model.
    max_claims = CLAIMS_IN_FLIGHT * 2 * max(1, len(file.models.of_pool(settings.pool)))
    app.runtime = Runtime(
        settings,
        file,
        max_claims,
        lambda: celery_patches.stop_consuming(worker, app.conf.task_default_queue),
        end=lambda code: _begin_shutdown(worker, code),
        start=lambda act: _start(worker, act),
    )
    app.steps["worker"].add(RuntimeStep)

    @app.task(name=WORK)  # type: ignore[untyped-decorator]
    def work() -> None:
        """Works until there is nothing to claim."""
        app.runtime.claim_timer.nudge()

    threading.excepthook = end_process
    celery_patches.silence()
    celery_patches.on_shutdown(lambda: _begin_shutdown(worker))
    worker = app.Worker(
        pool_cls=TaskPool,
        consumer_cls=celery_patches.NudgeConsumer,
        concurrency=max_claims + _SPARE_THREADS,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        hostname=f"{settings.pool}-{os.getpid()}@%h",
    )
    worker.start()


def _start(worker: Any, act: Callable[[], None]) -> None:
    """Runs a function on one of the threads of nudges, unless the worker shuts down."""
    with suppress(RuntimeError):
        worker.pool.executor.submit(act)


def _begin_shutdown(worker: Any, exit_code: int = 0) -> None:
    """Shuts down on a thread, within `SHUTDOWN_S`: a launch that hangs can't be ended otherwise."""
    timer = threading.Timer(SHUTDOWN_S, os._exit, args=(exit_code or FORCED_EXIT_CODE,))
    timer.daemon = True
    timer.start()
    threading.Thread(target=_shut_down, args=(worker, exit_code)).start()


def _shut_down(worker: Any, exit_code: int) -> None:
    """Ends the process. Celery's own way asks the broker first, which may not answer."""
    _log.info("stopping: no more work is taken")
    celery_patches.wake_event_loop(worker)
    worker.app.runtime.drain()
    worker.pool.executor.shutdown(cancel_futures=True)  # slices in flight are settled
    worker.app.runtime.stop()
    spans.stop()
    os._exit(exit_code)  # the interpreter's own end takes long, and nothing is left to do
