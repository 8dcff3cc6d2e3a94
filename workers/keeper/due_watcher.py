"""Watch for what is due, which wakes the services that do it."""

from collections.abc import Collection, Mapping
from contextlib import suppress

import psycopg
from psycopg import Connection

from jobs.settings import Settings
from jobs.store.monitoring import due
from jobs.store.queue.clock_watch import ClockWatch
from jobs.telemetry.metrics import record
from workers.service import Service

UNWATCHED = 30
"""Factor of the interval of a service that is woken: its own timer is for a watch that fails."""


class DueWatcher(Service):
    """Keeper service: one query each interval, where each of the services would open a transaction.

    services: those of each kind of work (`due.NAMES`). One that has failed keeps to its own timer.
    clock_watch: of leases; the look is one at the database's clock, too.
    """

    def __init__(
        self,
        settings: Settings,
        services: Mapping[str, Collection[Service]],
        clock_watch: ClockWatch,
    ) -> None:
        super().__init__("look for due work", settings.keeper_interval_s)
        self._interval_s, self._failed_s = settings.keeper_interval_s, settings.lease_s / 3
        self._url, self._services = settings.database_url, services
        self._clock_watch = clock_watch
        self._connection: Connection[due.DueWork] | None = None

    def run_once(self) -> int:
        """Looks once; returns 0. Raises psycopg.Error."""
        self.interval_s = self._failed_s
        with record.keeper_run(self.name):
            database_s, found = self._look()
        self.interval_s = self._interval_s
        self._clock_watch.observe(database_s)
        for kind in found:
            for service in self._services[kind]:
                if not service.has_failed:
                    service.wake.set()
        return 0

    def _look(self) -> due.DueWork:
        if self._connection:
            with suppress(psycopg.OperationalError):  # the server has started again
                return due.look(self._connection)
            self.close()
        self._connection = due.connect(self._url)
        return due.look(self._connection)

    def close(self) -> None:
        """Closes the connection."""
        if self._connection:
            self._connection.close()
            self._connection = None
