"""Nudges: broker messages that say "there is work". One lost or too many does no harm."""

from celery import Celery
from kombu.exceptions import KombuError

from jobs.registry import Registry
from jobs.settings import Settings
from jobs.store import claims, workers
from jobs.store.db import Tx
from workers.app import WORK, create_app, queue_name

_NUDGES_AT_ONCE = 8  # per ready worker; those that find work send the next one themselves
_MOST_NUDGES = 1000


class Nudger:
    """Keeps the nudges in each pool's queue near its claimable slices, capped."""

    def __init__(self, settings: Settings, models: Registry) -> None:
        self._settings, self._models = settings, models
        self._app: Celery = create_app(settings)
        self._broker = self._app.connection_for_write()

    def run_once(self, tx: Tx) -> int:
        claimable = claims.claimable(tx, self._models, _MOST_NUDGES)
        ready = workers.ready(tx, 2 * self._settings.lease_s) if any(claimable.values()) else {}
        sent = 0
        for pool in self._models.pools():
            keys = [model.key for model in self._models.of_pool(pool)]
            slices = sum(claimable.get(key, 0) for key in keys)
            cap = _NUDGES_AT_ONCE * max(1, *(ready.get(key, 0) for key in keys))
            if slices:
                sent += self._top_up(queue_name(pool), min(slices, cap))
        return sent

    def _top_up(self, queue: str, wanted: int) -> int:
        try:
            _, waiting, _ = self._broker.default_channel.queue_declare(queue, durable=True)
            missing = max(0, wanted - int(waiting))
            for _ in range(missing):
                self._app.send_task(WORK, queue=queue, connection=self._broker)
        except (KombuError, *self._broker.connection_errors):
            self._broker.close()
            self._broker = self._app.connection_for_write()
            raise
        return missing
