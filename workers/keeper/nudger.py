"""Nudges: broker messages that say "there is work". One lost or too many does no harm."""

from math import inf

from celery import Celery
from kombu import Connection

from jobs import clock
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store.db import Tx
from jobs.store.queue import backlog as waiting
from jobs.store.queue import workers
from jobs.telemetry.metrics import record
from workers import broker
from workers.broker import WORK, create_app, queue_of

_NUDGES_AT_ONCE = 8  # per ready worker; one that finds work goes on until there is none
_AGAIN = 2  # per ready worker, where all of those were sent a moment ago
_MOST_NUDGES = 1000
_CONFIRMED_WITHIN_S = 5.0


class Nudger:
    """Keeps the nudges in each pool's queue near its claimable slices, capped."""

    def __init__(self, settings: Settings, file: ModelsFile) -> None:
        self._settings, self._file = settings, file
        self._all_sent_s: dict[str, float] = {}  # by pool
        self._known: dict[str, Model] = {}  # with versions that are declared no more
        self._app: Celery = create_app(settings)
        self._broker: Connection = self._app.connection_for_write()

    def run_once(self, tx: Tx) -> int:
        """Returns the number of nudges sent. Raises broker.AWAY."""
        declared = {model.key: model for model in self._file.models}
        self._known |= declared
        claimable = waiting.claimable(tx, self._known.values(), _MOST_NUDGES)
        ready = (
            workers.ready_counts(tx, 2 * self._settings.lease_s) if any(claimable.values()) else {}
        )
        models = Registry([m for m in self._known.values() if m.key in declared or m.key in ready])
        sent = 0
        for pool in models.pools():
            keys = [model.key for model in models.of_pool(pool)]
            slices = sum(claimable.get(key, 0) for key in keys)
            workers_ready = max(1, *(ready.get(key, 0) for key in keys))
            if slices:
                sent += self._top_up(pool, min(slices, self._cap(pool, slices, workers_ready)))
        return sent

    def _cap(self, pool: str, slices: int, workers_ready: int) -> int:
        """Workers that are full of work make nothing of nudges: each burst of new work need not
        bring all of them again."""
        now_s, cap = clock.monotonic(), _NUDGES_AT_ONCE * workers_ready
        if slices < cap:
            return cap
        if now_s < self._all_sent_s.get(pool, -inf) + self._settings.keeper_interval_s:
            return _AGAIN * workers_ready
        self._all_sent_s[pool] = now_s
        return cap

    def _top_up(self, pool: str, wanted: int) -> int:
        try:
            return self._send(pool, wanted)
        except broker.AWAY:
            # A connection that was idle may have been closed by a broker that is well.
            self._connect_anew()
        try:
            return self._send(pool, wanted)
        except broker.AWAY:
            self._connect_anew()
            raise

    def _send(self, pool: str, wanted: int) -> int:
        queue = queue_of(pool)
        _, waiting, _ = queue(self._broker.default_channel).queue_declare()
        missing = max(0, wanted - int(waiting))
        for _ in range(missing):
            self._app.send_task(
                WORK, queue=queue, connection=self._broker, confirm_timeout=_CONFIRMED_WITHIN_S
            )
        record.nudged(pool, missing)
        return missing

    def _connect_anew(self) -> None:
        self._broker.collect(socket_timeout=0)  # a silent broker isn't waited for
        self._broker = self._app.connection_for_write()
