"""Reader of all reports in Redis, for the command line and the keeper."""

from contextlib import suppress

import orjson
from redis import Redis, RedisError

from jobs.telemetry.reports.reports import KEY, ReportSet, parse_fresh

_ABANDONED_S = 60.0  # age of a report whose process must have ended uncleanly


def read(redis: "Redis") -> ReportSet:
    """Returns the current reports; none if Redis is unavailable."""
    with suppress(RedisError):
        (seconds, micros), packed = redis.time(), redis.hvals(KEY)
        return ReportSet(parse_fresh(packed, seconds + micros / 1e6))  # type: ignore[arg-type]
    return ReportSet(())


def remove_stale(redis: "Redis") -> int:
    """Removes abandoned reports and returns their number. Raises RedisError."""
    seconds, _ = redis.time()
    stale = [
        name
        for name, packed in redis.hgetall(KEY).items()
        if _written(packed) < seconds - _ABANDONED_S
    ]
    return int(redis.hdel(KEY, *stale)) if stale else 0


def _written(packed: bytes | str) -> float:
    """Returns the time of a report, Unix s; 0 if it can't be read."""
    with suppress(ValueError, LookupError, TypeError):
        return float(orjson.loads(packed)["at"])
    return 0.0
