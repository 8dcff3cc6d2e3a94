"""Nudges: broker messages that say "there is work". One lost or too many does no harm."""

import threading
from collections.abc import Sequence
from math import inf

from celery import Celery
from kombu import Connection
from sqlalchemy import Engine as Database

from jobs import clock
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.store.connections.bounded import BoundedConnection
from jobs.store.db import Tx
from jobs.store.queue import backlog, workers
from jobs.telemetry.metrics import record
from workers import broker
from workers.broker import WORK, create_app, queue_of
from workers.service import Service

_DEBOUNCE_S = 0.01  # submissions that come closer together than this share one run,
_LONGEST_DEBOUNCE_S = 0.04  # and where there always are some, those that come in this time
_IDLE = 3  # times the keeper's interval, between two looks while nothing is claimable
_NUDGES_AT_ONCE = 8  # per ready worker; one that finds work goes on until there is none
_AGAIN = 2  # per ready worker, where some were sent a moment ago: they go on until there is none
_MOMENT_S = 0.1
_MAX_NUDGES = 1000
_CONFIRM_S = 5.0


class Nudger(Service):
    """Keeper service: keeps the nudges in each pool's queue near its claimable slices, capped."""

    def __init__(
        self,
        settings: Settings,
        file: ModelsFile,
        database: Database,
        transfers: Sequence[threading.Event] = (),
    ) -> None:
        super().__init__("nudge", _DEBOUNCE_S)
        self._settings, self._file, self._database = settings, file, database
        self._transfers = transfers  # set when a transfer is due
        self._listening: BoundedConnection | None = None
        self._sent_s: dict[str, float] = {}  # by pool
        self._all_sent_s: dict[str, float] = {}
        self._debounce_s = _DEBOUNCE_S
        self._known: dict[str, Model] = {}  # with versions that are declared no more
        self._found = True
        self._app: Celery = create_app(settings)
        self._broker: Connection = self._app.connection_for_write()

    def run_once(self) -> int:
        """Waits for a NOTIFY, then sends nudges; returns 0. Without one it looks after
        keeper_interval_s, and where nothing was claimable after three times as long.

        Raises database errors and broker.CONNECTION_ERRORS.
        """
        self.interval_s = self._settings.keeper_interval_s  # after a failure
        try:
            if db.TRANSFERS_CHANNEL in self._notified():
                for event in self._transfers:
                    event.set()
            with record.keeper_run(self.name), self._database.begin() as tx:
                self.send(tx)
        except BaseException:
            self.close()
            raise
        self.interval_s = self._debounce_s
        return 0

    def close(self) -> None:
        """Ends the connection that listens."""
        if self._listening:
            self._listening.close()
            self._listening = None

    def _notified(self) -> set[str]:
        """Returns the channels with notifications; at once where the connection is new."""
        if self._listening is None:
            self._listening = db.connect_alone(self._settings.database_url)
            for channel in (db.WORK_CHANNEL, db.TRANSFERS_CHANNEL):
                self._listening.execute(f"LISTEN {channel}")
            return set()
        notifications = list(self._listening.notifies(timeout=0))
        if notifications:  # they came during the pause
            self._debounce_s = min(2 * self._debounce_s, _LONGEST_DEBOUNCE_S)
        else:
            self._debounce_s = _DEBOUNCE_S
            times = 1 if self._found else _IDLE
            within_s = times * self._settings.keeper_interval_s
            notifications = db.await_notices(self._listening, within_s)
        return {each.channel for each in notifications}

    def send(self, tx: Tx) -> int:
        """Tops up the queues of all pools; returns the number of nudges. Raises
        broker.CONNECTION_ERRORS."""
        models = self._file.models
        declared = {model.key: model for model in models.with_adapters(models)}
        self._known |= declared
        stages = [stage for model in self._known.values() for stage in model.stages]
        claimable = backlog.claimable(tx, stages, _MAX_NUDGES)
        self._found = any(claimable.values())
        ready = workers.ready_counts(tx, 2 * self._settings.lease_s) if self._found else {}
        served = Registry([m for m in self._known.values() if m.key in declared or m.key in ready])
        sent = 0
        for pool in served.pools():
            keys = [model.key for model in served.of_pool(pool)]
            slices = sum(claimable.get(key, 0) for key in keys)
            workers_ready = max(1, *(ready.get(key, 0) for key in keys))
            if slices:
                sent += self._top_up(pool, min(slices, self._cap(pool, slices, workers_ready)))
        return sent

    def _cap(self, pool: str, slices: int, workers_ready: int) -> int:
        """Limits nudges: busy workers ignore them, so a burst need not reach all workers again."""
        now_s, cap = clock.monotonic(), _NUDGES_AT_ONCE * workers_ready
        if slices < cap:
            recently = now_s < self._sent_s.get(pool, -inf) + _MOMENT_S
            return _AGAIN * workers_ready if recently else cap
        if now_s < self._all_sent_s.get(pool, -inf) + self._settings.keeper_interval_s:
            return _AGAIN * workers_ready
        self._all_sent_s[pool] = now_s
        return cap

    def _top_up(self, pool: str, wanted: int) -> int:
        try:
            return self._send(pool, wanted)
        except broker.CONNECTION_ERRORS:
            # The broker may be well and have closed a connection that was idle.
            self._reconnect()
        try:
            return self._send(pool, wanted)
        except broker.CONNECTION_ERRORS:
            self._reconnect()
            raise

    def _send(self, pool: str, wanted: int) -> int:
        queue = queue_of(pool)
        _, waiting, _ = queue(self._broker.default_channel).queue_declare()
        missing = max(0, wanted - int(waiting))
        if missing:
            self._sent_s[pool] = clock.monotonic()
        for _ in range(missing):
            self._app.send_task(
                WORK, queue=queue, connection=self._broker, confirm_timeout=_CONFIRM_S
            )
        record.nudged(pool, missing)
        return missing

    def _reconnect(self) -> None:
        self._broker.collect(socket_timeout=0)  # doesn't wait for a silent broker
        self._broker = self._app.connection_for_write()
