"""Loop that runs each service of the keeper on its own thread, and services for functions."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

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
    """Service for one duty; after a failure it waits for a third of a lease."""

    def __init__(self, duty: Duty, database: Database, lease_s: float) -> None:
        super().__init__(duty.name, duty.interval_s)
        self._duty, self._database = duty, database
        self._failed_s = lease_s / 3

    def run_once(self) -> int:
        """Runs one transaction."""
        self.interval_s, self.has_failed = self._failed_s, True
        with record.keeper_run(self.name), self._database.begin() as tx:
            done = self._duty.step(tx)
        self.interval_s, self.has_failed = self._duty.interval_s, False
        if done:
            self._duty.report(done)
            _log.info("%s: %d", self.name, done)
        return done
