"""Loop that runs each service of the keeper on its own thread, and services for functions."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.errors import BlobStoreUnavailable
from jobs.store.db import Tx
from jobs.telemetry.metrics import record
from workers import broker
from workers.service import Service

_log = logging.getLogger(__name__)
_FAILURES = (SQLAlchemyError, psycopg.Error, BlobStoreUnavailable, *broker.CONNECTION_ERRORS)


def run_service(service: Service, stopping: threading.Event) -> None:
    """Runs a service until the event is set; wake it after setting that."""
    while not stopping.is_set():
        service.wake.clear()
        try:
            if service.run_once():
                continue
        except _FAILURES as error:
            _log.warning("%s: %s", service.name, error)
        if not stopping.is_set():
            service.wake.wait(service.interval_s)


class Periodic(Service):
    """Service that calls a function."""

    def __init__(self, name: str, interval_s: float, act: Callable[[], object]) -> None:
        super().__init__(name, interval_s)
        self._act = act

    def run_once(self) -> int:
        """Calls the function."""
        self._act()
        return 0


@dataclass(frozen=True, slots=True)
class Duty:
    """Work in the database, done in transactions until none is left."""

    name: str
    interval_s: float
    step: Callable[[Tx], int]  #: one transaction's work; returns how much that was
    report: Callable[[int], None] = lambda done: None  #: called with that after the commit


class DatabaseService(Service):
    """Service for one duty.

    Workers can't renew their leases while the database stands still. So leases are judged only a
    lease's time after the database was away or slow, or the keeper itself was suspended.
    """

    def __init__(
        self, duty: Duty, database: Database, lease_s: float, stopping: threading.Event
    ) -> None:
        super().__init__(duty.name, duty.interval_s)
        self._duty, self._database = duty, database
        self._lease_s, self._stopping = lease_s, stopping
        self._ended_s = clock.monotonic()  # end of the last run

    def run_once(self) -> int:
        """Runs one transaction."""
        suspended = clock.monotonic() > self._ended_s + self.interval_s + self._lease_s
        self.interval_s = self._lease_s  # after a failure
        try:
            with record.keeper_run(self.name):
                if suspended or self._database_stalls():
                    self._stopping.wait(self._lease_s)
                with self._database.begin() as tx:
                    done = self._duty.step(tx)
        finally:
            self._ended_s = clock.monotonic()
        self.interval_s = self._duty.interval_s
        if done:
            self._duty.report(done)
            _log.info("%s: %d", self.name, done)
        return done

    def _database_stalls(self) -> bool:
        since_s = clock.monotonic()
        self._database.connect().close()  # pings it
        return clock.monotonic() - since_s > self._lease_s / 3
