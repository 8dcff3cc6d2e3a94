"""The reports of all processes, read from Redis: for the command line and the keeper."""

from contextlib import suppress

import orjson
from redis import Redis, RedisError

from jobs.telemetry.reports.reports import KEY, Reading, readable

_FORGOTTEN_S = 60.0
"""A report that is so old is of a process that ended without a goodbye."""


def read(redis: "Redis") -> Reading:
    """Without Redis nobody is heard of: an empty one."""
    with suppress(RedisError):
        (seconds, micros), packed = redis.time(), redis.hvals(KEY)
        return Reading(readable(packed, seconds + micros / 1e6))  # type: ignore[arg-type]
    return Reading(())


def tidy(redis: "Redis") -> int:
    """Removes reports of processes that are gone. Returns their number; raises RedisError."""
    seconds, _ = redis.time()
    gone = [
        name
        for name, packed in redis.hgetall(KEY).items()
        if _written(packed) < seconds - _FORGOTTEN_S
    ]
    return int(redis.hdel(KEY, *gone)) if gone else 0


def _written(packed: bytes | str) -> float:
    """When; 0 where it can't be read."""
    with suppress(ValueError, LookupError, TypeError):
        return float(orjson.loads(packed)["at"])
    return 0.0
