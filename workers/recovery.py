"""Calls that a worker had in hand when it died: once more elsewhere, alone, or given up."""

import logging

from jobs.calls import redis as call_redis
from jobs.registry import Registry

_log = logging.getLogger(__name__)


class CallRecovery:
    """Looks after the lanes of every model; cheap while no worker has died."""

    def __init__(self, redis_url: str, models: Registry) -> None:
        client = call_redis.connect(redis_url)
        self._lanes = [call_redis.RedisLanes(client, model.key) for model in models]

    def run_once(self) -> int:
        """Returns how many calls were recovered. Raises RedisError."""
        recovered = sum(lanes.recover() for lanes in self._lanes)
        if recovered:
            _log.info("recovered %d calls of workers that are gone", recovered)
        return recovered
