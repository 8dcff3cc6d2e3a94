"""What a worker process has beside Celery: its models' hosts, its slices, and its pulse."""

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from redis import Redis, RedisError
from sqlalchemy.exc import SQLAlchemyError

from jobs.calls import redis as call_redis
from jobs.registry import Model, Registry
from jobs.settings import Settings
from jobs.store import db, workers
from workers.engines import registry as engines
from workers.host import ModelHost
from workers.scheduler.entries import Launch
from workers.slices import SliceRunner

_log = logging.getLogger(__name__)
_BELL_WAIT_S = 1
_CONNECTIONS = 12  # nudges at work, and the pulse


class Runtime:
    """One incarnation of a worker. `start` returns when every model is loaded and warm."""

    slices: SliceRunner

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._models = registry.of_pool(settings.pool)
        self._hosts: dict[str, ModelHost] = {}
        self._stopping = threading.Event()

    def start(self) -> None:
        settings = self._settings
        self._database = db.connect(settings.database_url, pool_size=_CONNECTIONS)
        self._redis: Redis = call_redis.connect(settings.redis_url, timeout_s=3)
        with self._database.begin() as tx:
            name, device = f"{socket.gethostname()}:{os.getpid()}", settings.device or "auto"
            keys = [model.key for model in self._models]
            self.incarnation = workers.register(tx, name, settings.pool, device, keys)
        for model in self._models:
            engine = engines.load(model, settings.device)
            lanes = call_redis.RedisLanes(self._redis, model.key)
            host = ModelHost(model, engine, lanes, self._note_launch)
            host.warm_up()
            self._hosts[model.key] = host
        self.slices = SliceRunner(self._database, self._hosts, self.incarnation, settings.lease_s)
        for host in self._hosts.values():
            host.start()
            _spawn(self._listen, host)
        self._beat()  # ready: first for calls, then in the database, which is what /readyz asks
        _spawn(self._pulse)
        _log.info("worker %d is ready for %s", self.incarnation, ", ".join(self._hosts))

    def drain(self) -> None:
        """Takes no more; what is in hand goes back after the launch it is in."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._announce(0)
            for host in self._hosts.values():
                host.drain()
            self.slices.close()

    def stop(self) -> None:
        """Once the nudges' tasks have returned: ends the devices, and says goodbye."""
        if not hasattr(self, "slices"):
            return  # it never came up
        self.drain()
        for host in self._hosts.values():
            host.stop()
        try:
            with self._database.begin() as tx:
                workers.heartbeat(tx, self.incarnation, "stopped")
        except SQLAlchemyError as error:
            _log.warning("couldn't say goodbye: %s", error)
        self._database.dispose()

    def _note_launch(self, model: Model, launch: Launch) -> int:
        return self.slices.note_launch(model, launch)

    def _pulse(self) -> None:
        while not self._stopping.wait(self._settings.lease_s / 3):
            self._beat()

    def _beat(self) -> None:
        self._announce(self._settings.lease_s)
        try:
            self.slices.renew()
        except SQLAlchemyError as error:
            _log.warning("can't renew leases: %s", error)

    def _announce(self, ttl_s: float) -> None:
        for host in self._hosts.values():
            host.announce(str(self.incarnation), ttl_s)

    def _listen(self, host: ModelHost) -> None:
        """Hears one model's bell while its device is idle: a busy one looks by itself."""
        bell = call_redis.Keys(host.model.key).bell
        while not self._stopping.is_set():
            if not host.idle.wait(_BELL_WAIT_S):
                continue
            try:
                heard = self._redis.blpop([bell], timeout=_BELL_WAIT_S)
                if heard and not host.idle.is_set():
                    self._redis.rpush(bell, "1")  # for a replica that is idle
            except RedisError:
                self._stopping.wait(_BELL_WAIT_S)
                continue
            if heard:
                host.ring()


def _spawn(target: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()
