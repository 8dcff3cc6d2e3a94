"""Calls that a worker had in hand when it died: once more elsewhere, alone, or given up."""

import logging

from jobs.calls import redis as call_redis
from jobs.models.watcher import ModelsFile

_log = logging.getLogger(__name__)


class CallRecovery:
    """Looks after the lanes of every model, declared no more included; cheap while no worker has
    died."""

    def __init__(self, redis_url: str, file: ModelsFile) -> None:
        self._client, self._file = call_redis.connect(redis_url), file
        self._lanes: dict[str, call_redis.RedisLanes] = {}

    def run_once(self) -> int:
        """Returns how many calls were recovered. Raises RedisError."""
        for model in self._file.models:
            if model.key not in self._lanes:
                self._lanes[model.key] = call_redis.RedisLanes(self._client, model.key)
        recovered = sum(lanes.recover() for lanes in self._lanes.values())
        if recovered:
            _log.info("recovered %d calls of workers that are gone", recovered)
        return recovered
