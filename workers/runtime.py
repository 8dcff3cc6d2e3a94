"""What a worker process has beside Celery: its models' hosts, its slices, and its pulse."""

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from jobs.blobs.payloads import Payloads
from jobs.calls import redis as call_redis
from jobs.registry import Model, Registry
from jobs.settings import Settings
from jobs.store import db, workers
from jobs.store.db import AWAY
from workers.engines import registry as engines
from workers.host import ModelHost
from workers.progress import Progress
from workers.pulling import CallPuller
from workers.scheduler.entries import Launch
from workers.slices import SliceRunner

_log = logging.getLogger(__name__)
_REDIS_S = 1.5  # longer than a slot listens
_DATABASE_PAUSE_S = 0.5
_CONNECTIONS = 12  # nudges at work, and the pulse


class Runtime:
    """One incarnation of a worker. `start` returns when every model is loaded and warm."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self.models = registry.of_pool(settings.pool)
        self.slices: SliceRunner | None = None
        self._hosts: dict[str, ModelHost] = {}
        self._announcing = threading.Lock()
        self._stopping = threading.Lock()
        self._draining = threading.Event()  # no more calls, no more claims
        self._stopped = threading.Event()  # no more lease to renew
        self._progress = Progress.inherited()

    def start(self) -> None:
        settings = self._settings
        self._database = db.connect(settings.database_url, pool_size=_CONNECTIONS)
        self._await_database()
        # A device that waits for Redis does nothing: better to go on without calls.
        redis = call_redis.connect(settings.redis_url, timeout_s=_REDIS_S)
        with self._database.begin() as tx:
            name, device = f"{socket.gethostname()}:{os.getpid()}", settings.device or "auto"
            keys = [model.key for model in self.models]
            self.incarnation = workers.register(tx, name, settings.pool, device, keys)
        self._progress.became(self.incarnation)
        for model in self.models:
            engine = engines.load(model, settings.device)
            lanes = call_redis.RedisLanes(redis, model.key)
            slots = model.limits.in_flight
            calls = CallPuller(lanes, str(self.incarnation), settings.lease_s, slots)
            host = ModelHost(model, engine, calls, self._note_launch, self._progress)
            host.warm_up()
            self._hosts[model.key] = host
        self.slices = SliceRunner(
            self._database,
            self._hosts,
            self.incarnation,
            settings.lease_s,
            Payloads.of(settings),
        )
        for host in self._hosts.values():
            host.start()
        # Ready: first for calls, then in the database, which is what /readyz asks.
        self._announce()
        self._renew(self.slices)
        _spawn(self._every_third_of_a_lease, self._stopped, self._announce)
        _spawn(self._every_third_of_a_lease, self._stopped, self._renew, self.slices)
        _log.info("worker %d is ready for %s", self.incarnation, ", ".join(self._hosts))

    def drain(self) -> None:
        """Takes no more; what is in hand goes back after the launch it is in."""
        if self._draining.is_set():
            return
        self._draining.set()
        self._announce()
        for host in list(self._hosts.values()):  # more come up, where it is told so early
            host.drain()
        if self.slices is not None:
            self.slices.close()

    def stop(self) -> None:
        """Once the nudges' tasks have returned: ends the devices, and says goodbye. Whoever comes
        second waits for the first."""
        with self._stopping:
            if not self._stopped.is_set():
                self._stop()

    def _stop(self) -> None:
        self.drain()
        for host in self._hosts.values():
            host.stop()
        self._stopped.set()
        if self.slices is None:
            return  # it never came up
        self._announce()
        try:
            with self._database.begin() as tx:
                workers.heartbeat(tx, self.incarnation, "stopped")
        except SQLAlchemyError as error:
            _log.warning("couldn't say goodbye: %s", error)
        self._database.dispose()

    def _await_database(self) -> None:
        """A worker that starts while the database is away comes up with it."""
        while not self._draining.is_set():
            try:
                self._database.connect().close()
                return
            except AWAY as error:
                _log.warning("the database is away: %s", error)
                self._draining.wait(_DATABASE_PAUSE_S)

    def _note_launch(self, model: Model, launch: Launch) -> int:
        assert self.slices is not None  # no launch has items before a slice was claimed
        return self.slices.note_launch(model, launch)

    def _every_third_of_a_lease(
        self, until: threading.Event, act: Callable[..., None], *arguments: Any
    ) -> None:
        while not until.wait(self._settings.lease_s / 3):
            act(*arguments)

    def _renew(self, slices: SliceRunner) -> None:
        try:
            slices.renew()
        except SQLAlchemyError as error:
            _log.warning("can't renew leases: %s", error)

    def _announce(self) -> None:
        """Apart from the leases: a Redis that hangs costs no slice. A worker that drains lives on
        for the calls that it has in hand, until the last of them is answered."""
        with self._announcing:
            ready, alive = not self._draining.is_set(), not self._stopped.is_set()
            for host in list(self._hosts.values()):
                host.announce(ready=ready, alive=alive)


def _spawn(target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()
