"""What a worker process has beside Celery: its models, its slices, and its pulse."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from jobs.blobs.payloads import Payloads
from jobs.calls import redis as call_redis
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import workers
from jobs.telemetry import logs
from jobs.telemetry.reports.reporter import Reporter
from workers.device.host_table import HostTable
from workers.device.model_host import CLAIMS_IN_HAND, GUEST_CLAIMS
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.process.model_loader import ModelLoader
from workers.process.slice_runner import SliceRunner
from workers.process.status_report import StatusReporter

_log = logging.getLogger(__name__)
_REDIS_S = 1.5  # longer than a slot listens
_DATABASE_PAUSE_S = 0.5
_CONNECTIONS = 12  # nudges at work, and the pulse


class Runtime:
    """One incarnation of a worker. `start` returns once it is registered; its models come up one
    after the other, each ready as soon as it is warm.

    deaf: called when people ask it to drain: nudges are for others then; leave: when they want it
    back. What has drained comes to life as another incarnation, which its supervisor starts.
    """

    def __init__(
        self,
        settings: Settings,
        file: ModelsFile,
        claims_in_hand: int = CLAIMS_IN_HAND,
        deaf: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGTERM),
    ) -> None:
        self._deaf, self._leave = deaf, leave
        self._set_aside = False  # people asked it to drain
        self._settings, self._file, self._claims = settings, file, claims_in_hand
        self.slices: SliceRunner | None = None
        self._stopping = threading.Lock()
        self._draining = threading.Event()  # no more calls, no more claims
        self._stopped = threading.Event()  # no more lease to renew
        self._progress = LaunchDeadline.inherited()
        self._welcomers: list[threading.Thread] = []

    def start(self) -> None:
        settings = self._settings
        self._database = db.connect(settings.database_url, pool_size=_CONNECTIONS, role=db.WORKER)
        self._await_database()
        # A device that waits for Redis does nothing: better to go on without calls.
        self._redis = redis = call_redis.connect(settings.redis_url, timeout_s=_REDIS_S)
        with self._database.begin() as tx:
            name, device = f"{socket.gethostname()}:{os.getpid()}", settings.device or "auto"
            keys = [model.key for model in self._file.models.of_pool(settings.pool)]
            incarnation = workers.register(tx, name, settings.pool, device, keys)
        self._progress.became(incarnation)
        logs.set_process_fields(worker=str(incarnation))
        self._hosts = HostTable(settings, incarnation, redis, self._progress, self._claims)
        slices = SliceRunner(
            self._database,
            self._hosts.by_key,
            incarnation,
            settings.lease_s,
            Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint),
            settings.pool,
            self._file.price,
        )
        self._residents = ModelLoader(
            settings, self._file, self._hosts, slices, self._database, redis, self._progress
        )
        telling = StatusReporter(settings, self._hosts, self._residents, slices)
        self._reporter = Reporter(
            redis, str(incarnation), "worker", telling.about, settings.metrics_window_s
        )
        self.slices = slices
        if self._draining.is_set():
            return  # it was told so while it waited for the database
        if settings.metrics:
            self._reporter.start()
        _spawn(self._residents.run)
        _spawn(self._every_third_of_a_lease, self._stopped, self._hosts.announce_all)
        _spawn(self._every_third_of_a_lease, self._stopped, self._renew, slices)
        self._welcomers = [_spawn(self._welcome, slices) for _ in range(GUEST_CLAIMS)]
        _log.info("worker %d loads %s", incarnation, ", ".join(keys))

    def drain(self) -> None:
        """Takes no more; what is in hand goes back after the launch it is in."""
        if self._draining.is_set():
            return
        self._draining.set()
        if self.slices is not None:
            self._residents.stop()
            self._hosts.drain()
            self.slices.close()

    def stop(self) -> None:
        """Once the nudges' tasks have returned: ends the devices, and says goodbye. Whoever comes
        second waits for the first."""
        with self._stopping:
            if not self._stopped.is_set():
                self._stop()

    def _stop(self) -> None:
        self.drain()
        for thread in self._welcomers:
            thread.join()  # what guests have in hand is settled
        if self.slices is not None:
            self._hosts.stop()
        self._stopped.set()
        if self.slices is None:
            return  # it never came up
        self._reporter.stop()
        try:
            with self._database.begin() as tx:
                workers.heartbeat(tx, self._hosts.incarnation, "stopped")
        except SQLAlchemyError as error:
            _log.warning("couldn't say goodbye: %s", error)
        self._database.dispose()
        self._redis.close()

    def _await_database(self) -> None:
        """A worker that starts while the database is away comes up with it."""
        while not self._draining.is_set():
            try:
                self._database.connect().close()
                return
            except CONNECTION_ERRORS as error:
                _log.warning("the database is away: %s", error)
                self._draining.wait(_DATABASE_PAUSE_S)

    def _every_third_of_a_lease(
        self, until: threading.Event, act: Callable[..., None], *arguments: Any
    ) -> None:
        while not until.wait(self._settings.lease_s / 3):
            act(*arguments)

    def _renew(self, slices: SliceRunner) -> None:
        try:
            slices.renew()
            slices.release_excess()
        except SQLAlchemyError as error:
            _log.warning("can't renew leases: %s", error)
        else:
            self._obey(slices.asked_to_drain)

    def _obey(self, drain: bool) -> None:
        """What people ask of it. Set aside it lives on, with nothing to do."""
        if drain and not self._draining.is_set():
            _log.info("asked to drain: no more work is taken")
            self._set_aside = True
            self._deaf()
            self.drain()
        elif self._set_aside and not drain:
            _log.info("wanted again: the next incarnation takes over")
            self._set_aside = False
            self._leave()

    def _welcome(self, slices: SliceRunner) -> None:
        while not self._draining.is_set():
            try:
                slices.claim_preemptively()
            except CONNECTION_ERRORS as error:
                _log.warning("no guests are let in: %s", error)
                self._draining.wait(_DATABASE_PAUSE_S)


def _spawn(target: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread
