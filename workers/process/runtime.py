"""Runtime of a worker process, apart from Celery: its models, its slices, its heartbeat."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.blobs.payloads import Payloads
from jobs.calls import redis as call_redis
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.store.db import CONNECTION_ERRORS, Tx
from jobs.store.queue import workers
from jobs.store.queue.workers import Death
from jobs.store.registry import snapshot
from jobs.store.registry.follower import RegistryFollower
from jobs.store.scaling import reclaims
from jobs.telemetry import logs
from jobs.telemetry.log_ring import LogRing
from jobs.telemetry.reports.reporter import Reporter
from workers.device.claim_capacity import CLAIMS_IN_FLIGHT, PREEMPTIVE_CLAIMS
from workers.device.health import DeviceHealth
from workers.device.monitoring.watchdog import (
    DEVICE_CRASH_EXIT_CODE,
    FIRST_LAUNCH_EXIT_CODE,
    SICK_EXIT_CODE,
    LaunchDeadline,
)
from workers.engines.common import user_code
from workers.items.sources import InputSources
from workers.preparation.fetch import Fetcher
from workers.preparation.store import PreparedStore
from workers.process.checkpointing import Checkpointer
from workers.process.claim_timer import ClaimTimer
from workers.process.host_table import HostTable
from workers.process.model_loader import ModelLoader
from workers.process.preparation.ahead import EVERY_S, Ahead
from workers.process.preparation.settlement import PreparationSettlement
from workers.process.slice_runner import SliceRunner
from workers.process.status_report import StatusReporter

_log = logging.getLogger(__name__)
_REDIS_TIMEOUT_S = 1.5  # longer than a slot blocks on Redis
_DATABASE_PAUSE_S = 0.5
_BACKGROUND_ENDS_S = 5.0  # threads that are told to stop
_ERROR_PAUSE_S = 5.0  # after an error that nobody expects
_ADVICE_S = 2.0  # between two looks at the advice of keepers
_CONNECTIONS = 12  # of threads with claims, and the heartbeat


class Runtime:
    """One incarnation of a worker. `start` returns once it is registered; its models are loaded one
    after the other, each ready as soon as it is warm.

    stop_consuming: called when an operator drains this worker: nudges are for others then. leave:
    called when the operator resumes it; its supervisor starts another incarnation in its place.
    end: called with the exit code when the device failed; must not block. start: runs a function on
    a thread of nudges; None: on one of its own.
    """

    def __init__(
        self,
        settings: Settings,
        file: ModelsFile,
        max_claims: int = CLAIMS_IN_FLIGHT,
        stop_consuming: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGTERM),
        end: Callable[[int], None] = os._exit,
        start: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._stop_consuming, self._leave, self._end = stop_consuming, leave, end
        self._start_thread = start or self._start_claims
        self._health = DeviceHealth(self._leave_failed_device, self._count_succeeding_elsewhere)
        self._drained_by_operator = False
        self._settings, self._file, self._max_claims = settings, file, max_claims
        self.slices: SliceRunner | None = None
        self._stopping = threading.Lock()
        self._draining = threading.Event()  # no more calls, no more claims
        self._stopped = threading.Event()  # no more lease to renew
        self._deadline = LaunchDeadline.inherited()
        self._claimers: list[threading.Thread] = []
        self._background: list[threading.Thread] = []

    def start(self) -> None:
        """Registers the worker and starts its threads; waits for a database that is away."""
        settings = self._settings
        user_code.search_beside(settings.models)
        self._database = db.connect(settings.database_url, pool_size=_CONNECTIONS, role=db.WORKER)
        self._await_database()
        self._registry = RegistryFollower(
            self._database, settings.database_url, self._file.adopt, snapshot.read_with_unfinished
        )
        self._registry.start()
        # A device must not wait for Redis: it goes on without calls.
        self._redis = redis = call_redis.connect(settings.redis_url, timeout_s=_REDIS_TIMEOUT_S)
        with self._database.begin() as tx:
            name, device = f"{socket.gethostname()}:{os.getpid()}", settings.device or "auto"
            keys = [model.key for model in self._file.models.of_pool(settings.pool)]
            spot = settings.spot_notice_s
            incarnation = workers.register(tx, name, settings.pool, device, keys, spot)
        self._deadline.set_incarnation(incarnation)
        logs.set_process_fields(worker=str(incarnation))
        self._hosts = HostTable(
            settings, incarnation, redis, self._deadline, self._max_claims, self._health
        )
        slices = SliceRunner(
            self._database,
            self._hosts.claiming,
            incarnation,
            settings.lease_s,
            self._sources(),
            settings.pool,
            self._file.price,
            spot=settings.spot_notice_s > 0,
        )
        self._loader = ModelLoader(
            settings, self._file, self._hosts, slices, self._database, redis, self._deadline
        )
        status = StatusReporter(settings, self._hosts, self._loader, slices)
        self._reporter = Reporter(
            redis, str(incarnation), "worker", status.report, settings.metrics_window_s
        )
        self._log_ring = LogRing(redis, incarnation, settings.log_lines)
        self.claim_timer = ClaimTimer(
            self._database, self._hosts.claiming, slices.work, self._start_thread
        )
        self.slices = slices
        if self._draining.is_set():
            return  # drained while it waited for the database
        if settings.metrics:
            self._reporter.start()
        if settings.log_lines:
            self._log_ring.start()
        self._background = self._start_background(slices)
        self._claimers = [
            _spawn(self.claim_timer.run),
            *(_spawn(self._claim_preemptively, slices) for _ in range(PREEMPTIVE_CLAIMS)),
        ]
        _log.info("worker %d loads %s", incarnation, ", ".join(keys))

    def _start_background(self, slices: SliceRunner) -> list[threading.Thread]:
        beat_s = self._settings.lease_s / 3
        threads = [
            _spawn(self._loader.run),
            _spawn(self._heartbeat, self._stopped, beat_s, self._hosts.announce_all),
            _spawn(self._heartbeat, self._stopped, beat_s, self._loader.announce_loading),
            _spawn(self._heartbeat, self._stopped, beat_s, self._renew, slices),
            _spawn(self._heartbeat, self._draining, _ADVICE_S, self._hosts.follow_advice),
            _spawn(Checkpointer(self._database, self._hosts.by_key).run, self._stopped),
        ]
        if isinstance(slices.settlement, PreparationSettlement):
            ahead = self._ahead(slices.settlement)
            threads.append(_spawn(self._heartbeat, self._stopped, EVERY_S, ahead.run_once))
        return threads

    def _sources(self) -> InputSources:
        settings = self._settings
        payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)
        return InputSources(payloads, PreparedStore(self._redis, payloads), Fetcher(settings))

    def _ahead(self, settlement: PreparationSettlement) -> Ahead:
        return Ahead(
            self._database,
            self._hosts.claiming,
            settlement.item_bytes,
            self._settings.prepare_ahead_mb,
            self.claim_timer.start,
        )

    def drain(self) -> None:
        """Takes no more work; slices in flight go back after the launch they are in."""
        if self._draining.is_set():
            return
        self._draining.set()
        if self.slices is not None:
            self._loader.stop()
            self._hosts.drain()
            self.claim_timer.stop()
            self.slices.close()

    def record_reclaim(self, by: str, left_s: float) -> None:
        """Records that the machine of this spot worker is reclaimed. by: notice."""
        if self.slices is None:
            return  # it was never registered
        try:
            with self._database.begin() as tx:
                reclaims.record(tx, self._hosts.incarnation, by, left_s)
        except SQLAlchemyError as error:
            _log.warning("can't record the reclaim: %s", error)

    def stop(self) -> None:
        """Stops hosts and threads, and marks the worker stopped. Called once the tasks of nudges
        have returned; a second caller waits for the first."""
        with self._stopping:
            if not self._stopped.is_set():
                self._stop()

    def _stop(self) -> None:
        self.drain()
        for thread in self._claimers:
            thread.join()  # their slices are settled
        if self.slices is not None:
            self._hosts.stop()
        self._stopped.set()
        if self.slices is None:
            return  # it was never registered
        self._await_background()
        self._reporter.stop()
        self._log_ring.stop()
        self._registry.stop()
        try:
            with self._database.begin() as tx:
                self._report_end(tx)
        except SQLAlchemyError as error:
            _log.warning("can't mark this worker stopped: %s", error)
        self._database.dispose()
        self._redis.close()

    def _start_claims(self, act: Callable[[], None]) -> None:
        running = [thread for thread in self._background if thread.is_alive()]
        self._background = [*running, _spawn(act)]

    def _await_background(self) -> None:
        """Waits a while for threads that use the connections, which are closed next."""
        until_s = clock.monotonic() + _BACKGROUND_ENDS_S
        for thread in self._background:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until_s - clock.monotonic()))

    def _report_end(self, tx: Tx) -> None:
        """Marks the worker stopped, or dead where its device failed."""
        if (failure := self._health.failure) is None:
            workers.heartbeat(tx, self._hosts.incarnation, "stopped")
        else:
            how: Death = "crashed" if self._health.suspects_launch else "sick"
            workers.report_death(tx, self._hosts.incarnation, how, str(failure))

    def _count_succeeding_elsewhere(self, jobs: Collection[UUID]) -> int:
        try:
            with self._database.begin() as tx:
                return workers.count_succeeding_elsewhere(tx, self._hosts.incarnation, jobs)
        except SQLAlchemyError as error:
            _log.warning("can't compare with other workers: %s", error)
            return 0

    def _leave_failed_device(self) -> None:
        _log.critical("the device failed, no more work is taken: %s", self._health.failure)
        if not self._health.suspects_launch:
            self._end(SICK_EXIT_CODE)
        else:
            worked = self._health.has_worked
            self._end(DEVICE_CRASH_EXIT_CODE if worked else FIRST_LAUNCH_EXIT_CODE)

    def _await_database(self) -> None:
        """Waits until the database can be reached, or the worker drains."""
        while not self._draining.is_set():
            try:
                self._database.connect().close()
                return
            except CONNECTION_ERRORS as error:
                _log.warning("the database is away: %s", error)
                self._draining.wait(_DATABASE_PAUSE_S)

    def _heartbeat(
        self, until: threading.Event, every_s: float, act: Callable[..., None], *arguments: Any
    ) -> None:
        while not until.wait(every_s):
            try:
                act(*arguments)
            except Exception:
                _log.exception("a heartbeat failed; the next one comes in its time")

    def _renew(self, slices: SliceRunner) -> None:
        try:
            slices.renew()
            slices.release_excess()
        except SQLAlchemyError as error:
            _log.warning("can't renew leases: %s", error)
        else:
            self._follow_operator(slices.drain_requested)

    def _follow_operator(self, drain: bool) -> None:
        """Drains or resumes as an operator asked. A drained worker lives on, with nothing to do."""
        if drain and not self._draining.is_set():
            _log.info("drained by an operator: no more work is taken")
            self._drained_by_operator = True
            self._stop_consuming()
            self._loader.hold()
            self.drain()
        elif self._drained_by_operator and not drain:
            _log.info("resumed by an operator: the next incarnation takes over")
            self._drained_by_operator = False
            self._leave()

    def _claim_preemptively(self, slices: SliceRunner) -> None:
        while not self._draining.is_set():
            try:
                slices.claim_preemptively()
            except CONNECTION_ERRORS as error:
                _log.warning("can't claim preemptively: %s", error)
                self._draining.wait(_DATABASE_PAUSE_S)
            except Exception:
                _log.exception("a preemptive claim failed; the next is in %g s", _ERROR_PAUSE_S)
                self._draining.wait(_ERROR_PAUSE_S)


def _spawn(target: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread
