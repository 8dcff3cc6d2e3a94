"""Celery worker: the transport of nudges, and the process that holds the models.

Celery brings a nudge to a thread, and `SliceRunner.work` does the rest. A bootstep starts the
runtime before the pool of threads, and stops it after.
"""

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from celery import Celery, bootsteps
from celery.concurrency.thread import TaskPool
from sqlalchemy.exc import SQLAlchemyError

from jobs.models.watcher import ModelsFile
from jobs.settings import Settings, SettingsError, load
from jobs.store import db
from jobs.store.registry import snapshot
from jobs.store.registry.follower import look
from jobs.telemetry.metrics import exposition, record
from jobs.telemetry.tracing import export, spans
from workers import celery_patches
from workers.broker import WORK, create_app
from workers.crash import end_process
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT
from workers.device.monitoring.watchdog import FORCED_EXIT_CODE, RECLAIMED_EXIT_CODE
from workers.engines import cuda_uuid
from workers.process.runtime import Runtime

if TYPE_CHECKING:  # loads an HTTP client, for spot workers alone
    from workers.spot.watcher import Notice, Watcher

_SPARE_THREADS = 2  # for nudges that find nothing

# Threads that feed and settle slices hold the GIL for so long while a call, whose own thread has
# little to do, waits for it at each of its steps.
_SWITCH_INTERVAL_S = 0.0005
_SPARE_S = 5.0  # of a notice, at most: for what the end itself takes
_NO_BROKER = (
    "MILLRACE_REDIS_URL isn't set; of the embedded Redis it is "
    "$(millrace check --json | jq -r .settings.MILLRACE_REDIS_URL)"
)

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
        if worker.app.watcher:
            worker.app.watcher.start()

    def close(self, worker: Any) -> None:
        """Takes no more work."""
        worker.app.runtime.drain()

    def stop(self, worker: Any) -> None:
        """Ends once slices in flight are settled."""
        worker.app.runtime.stop()

    terminate = stop


celery_patches.start_before_pool(RuntimeStep)


def __getattr__(name: str) -> Celery:
    """Returns the app that `celery -A workers.app` asks for. Raises SettingsError."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    settings = load()
    if not settings.broker:
        raise SettingsError([_NO_BROKER])
    return create_app(settings)


def run_worker(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT. Slices in flight are given back after their launch. Raises
    SettingsError where a pooler loses sessions of the database."""
    db.check_sessions(settings.database_url)
    cuda_uuid.show_only(settings.device, os.environ)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    record.start("worker", settings.metrics)
    exposition.serve(settings)
    export.start(settings, "worker")
    app = create_app(settings)
    file = ModelsFile(settings.models)
    _read_registry(settings, file)
    # Twice: a version and the one that follows it, of every model.
    max_claims = CLAIMS_IN_FLIGHT * 2 * max(1, len(file.models.of_pool(settings.pool)))
    app.runtime = Runtime(
        settings,
        file,
        max_claims,
        lambda: celery_patches.stop_consuming(worker, app.conf.task_default_queue),
        leave=lambda: _begin_shutdown(worker, settings.drain_s),
        end=lambda code: _begin_shutdown(worker, settings.drain_s, code),
        start=lambda act: _start(worker, act),
    )
    spot = settings.spot_notice_s > 0
    app.steps["worker"].add(RuntimeStep)

    @app.task(name=WORK)  # type: ignore[untyped-decorator]
    def work() -> None:
        """Works until there is nothing to claim."""
        app.runtime.claim_timer.nudge()

    threading.excepthook = end_process
    celery_patches.silence()
    celery_patches.answer_inspection_alone()
    celery_patches.on_shutdown(
        lambda: (
            app.watcher.notice("sigterm", inf)
            if spot
            else _begin_shutdown(worker, settings.drain_s)
        )
    )
    worker = app.Worker(
        pool_cls=TaskPool,
        consumer_cls=celery_patches.NudgeConsumer,
        concurrency=max_claims + _SPARE_THREADS,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        hostname=f"{settings.pool}-{os.getpid()}@{socket.gethostname()}",
    )
    app.watcher = _watcher(worker, settings) if spot else None
    worker.start()


def _read_registry(settings: Settings, file: ModelsFile) -> None:
    """Reads the registry's models, as far as the database can be reached."""
    database = db.connect(settings.database_url, pool_size=1, role=db.WORKER)
    try:
        look(database, file.adopt, snapshot.read_with_unfinished)
    except (SQLAlchemyError, *db.CONNECTION_ERRORS) as error:
        _log.warning("can't read the registry yet: %s", error)
    finally:
        database.dispose()


def _start(worker: Any, act: Callable[[], None]) -> None:
    """Runs a function on one of the threads of nudges, unless the worker shuts down."""
    with suppress(RuntimeError):
        worker.pool.executor.submit(act)


def _watcher(worker: Any, settings: Settings) -> "Watcher":
    from workers.spot.watcher import Watcher

    return Watcher(settings, lambda notice: _reclaim(worker, notice, settings.drain_s))


def _reclaim(worker: Any, notice: "Notice", drain_s: float) -> None:
    """Shuts down before the machine is gone. After a notice other than a signal its supervisor
    starts no other worker in its place."""
    # At least a second, whatever the provider's clock says: leases are given back in it.
    within_s = max(min(1.0, drain_s), notice.left_s - min(_SPARE_S, notice.left_s / 4))
    if notice.by == "sigterm":
        _begin_shutdown(worker, min(drain_s, within_s), 0, notice)
    else:
        _begin_shutdown(worker, within_s, RECLAIMED_EXIT_CODE, notice)
        if getattr(worker, "consumer", None):  # nudges are for others now
            celery_patches.stop_consuming(worker, worker.app.conf.task_default_queue)


def _begin_shutdown(
    worker: Any, within_s: float, exit_code: int = 0, notice: "Notice | None" = None
) -> None:
    """Shuts down on a thread. A launch that outlasts `within_s` is cut short: one that hangs can't
    be ended otherwise."""
    timer = threading.Timer(within_s, os._exit, args=(exit_code or FORCED_EXIT_CODE,))
    timer.daemon = True
    timer.start()
    threading.Thread(target=_shut_down, args=(worker, exit_code, notice)).start()


def _shut_down(worker: Any, exit_code: int, notice: "Notice | None") -> None:
    """Ends the process. Celery's own way asks the broker first, which may not answer."""
    _log.info("stopping: no more work is taken")
    celery_patches.wake_event_loop(worker)
    worker.app.runtime.drain()
    if notice:
        worker.app.runtime.record_reclaim(notice.by, notice.left_s)
    worker.pool.executor.shutdown(cancel_futures=True)  # slices in flight are settled
    worker.app.runtime.stop()
    spans.stop()
    os._exit(exit_code)  # the interpreter's own end takes long, and nothing is left to do
