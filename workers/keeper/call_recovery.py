"""Recovery of calls that a worker held when it died: they run again alone, or are given up."""

import logging
from typing import Any

from jobs.calls import redis as call_redis
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.telemetry.metrics import record
from workers.service import Service

_log = logging.getLogger(__name__)


class CallRecovery(Service):
    """Keeper service for the lanes of every model, also of those declared no more.

    It needs no database, and is cheap while no worker has died.
    """

    def __init__(self, settings: Settings, file: ModelsFile) -> None:
        super().__init__("recover calls", settings.keeper_interval_s)
        self._client, self._file = call_redis.connect(settings.redis_url), file
        self._lanes: dict[str, call_redis.RedisLanes] = {}

    def run_once(self) -> int:
        """Returns how many calls were recovered, also by supervisors and workers: they are counted
        here, since a supervisor has no metrics. Raises RedisError."""
        with record.keeper_run(self.name):
            for model in self._file.models:
                if model.key not in self._lanes:
                    self._lanes[model.key] = call_redis.RedisLanes(self._client, model.key)
            taken = call_redis.with_taken_calls(self._client, self._lanes)
            for key in taken:
                self._lanes[key].recover()
            counted: Any = self._client.getdel(call_redis.RECOVERED)
            recovered = int(counted or 0)
            record.calls_recovered(recovered)
        if recovered:
            _log.info("%d calls of dead workers were recovered", recovered)
        return recovered
