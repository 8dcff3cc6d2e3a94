"""Everything periodic, as services of one shape. Several keepers may run: rows are locked with
SKIP LOCKED or taken once, so that PostgreSQL decides who does what."""

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from kombu.exceptions import KombuError
from redis import RedisError
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock, registry
from jobs.settings import Settings
from jobs.store import claims, db, endings, endpoints, partitions, verbs, workers
from jobs.store.db import Tx
from workers.nudger import Nudger
from workers.webhooks.sender import WebhookSender

_log = logging.getLogger(__name__)
_MOST_ROUNDS = 1000  # of one service, before the others get their turn
_CALM_S = 0.01  # submissions that come closer together than this share one look


@dataclass(frozen=True, slots=True)
class Service:
    """One periodic duty. run_once: in a transaction of its own, repeated until it returns 0."""

    name: str
    every_s: float
    run_once: Callable[[Tx], int]


def services(settings: Settings) -> list[Service]:
    silent_s = 2 * settings.lease_s
    return [
        Service("reap", settings.keeper_interval_s, claims.reap),
        Service("expire", settings.keeper_interval_s, _expire),
        Service("sweep", 5.0, endings.sweep),
        Service("lose workers", 5.0, lambda tx: workers.lose(tx, silent_s)),
        Service("forget endpoints", 3600.0, endpoints.forget),
        Service("partitions", 3600.0, lambda tx: len(partitions.ensure(tx, clock.now()))),
    ]


def _expire(tx: Tx) -> int:
    """One job a transaction: locks are taken slices first, then the job."""
    due = verbs.due(tx)
    if due:
        verbs.expire(tx, due[0])
    return len(due)


class Keeper:
    """Runs the services until told to stop; woken early by NOTIFY."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._database: Database = db.connect(settings.database_url, pool_size=2)
        self._nudger = Nudger(settings, registry.load(settings.models))
        self._webhooks = WebhookSender(settings)
        self._services = services(settings)
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        nudges = threading.Thread(target=self._nudge, daemon=True)
        webhooks = threading.Thread(target=self._webhooks.run, args=(self._stopping,), daemon=True)
        for thread in (nudges, webhooks):
            thread.start()
        due_s = dict.fromkeys((service.name for service in self._services), 0.0)
        while not self._stopping.is_set():
            for service in self._services:
                if clock.monotonic() >= due_s[service.name]:
                    self._run(service)
                    due_s[service.name] = clock.monotonic() + service.every_s
            self._stopping.wait(self._settings.keeper_interval_s)
        for thread in (nudges, webhooks):
            thread.join()
        self._database.dispose()

    def _run(self, service: Service) -> None:
        try:
            for _ in range(_MOST_ROUNDS):
                with self._database.begin() as tx:
                    done = service.run_once(tx)
                if not done or self._stopping.is_set():
                    return
                _log.info("%s: %d", service.name, done)
        except SQLAlchemyError as error:
            _log.warning("%s: %s", service.name, error)

    def _nudge(self) -> None:
        """Listens for new work on a connection of its own; looks around in any case."""
        while not self._stopping.is_set():
            try:
                self._listen()
            except (psycopg.Error, SQLAlchemyError, KombuError, RedisError, OSError) as error:
                _log.warning("nudging: %s", error)
                self._stopping.wait(self._settings.keeper_interval_s)

    def _listen(self) -> None:
        with psycopg.connect(db.plain_url(self._settings.database_url), autocommit=True) as heard:
            heard.execute(f"LISTEN {db.WORK_CHANNEL}")
            while not self._stopping.is_set():
                with self._database.begin() as tx:
                    self._nudger.run_once(tx)
                self._stopping.wait(_CALM_S)
                wait_s = self._settings.keeper_interval_s
                list(heard.notifies(timeout=wait_s, stop_after=1))
                list(heard.notifies(timeout=0))  # the rest of the crowd


def run_keeper(settings: Settings) -> None:
    """Keeps until SIGTERM or SIGINT."""
    keeper = Keeper(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    keeper.run()


if __name__ == "__main__":
    from jobs import logs
    from jobs.settings import load

    logs.configure("keeper")
    run_keeper(load())
