"""How the system went lately: a few figures every EVERY_S, in a Redis list. A keeper writes it; the
dashboard draws it. Redis may lose it; then it begins anew."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from jobs.telemetry.reports.reports import Reading

if TYPE_CHECKING:
    from redis import Redis

KEY = "millrace:history"
EVERY_S = 10.0
MOST = 180
"""Points that are kept: half an hour."""
_TURN = "millrace:history:turn"
_KEPT_S = 3600


@dataclass(frozen=True, slots=True)
class Point:
    """at: Unix time by Redis' clock. None: nobody told of it."""

    at: float
    calls_s: float
    items_s: float
    failures_s: float
    waiting: float | None
    busy: float | None
    rows: float | None
    p99_s: float | None

    @classmethod
    def of(cls, reading: Reading, at: float) -> "Point":
        queues = [
            reading.gauge_by(f"millrace_queue_{what}", "model").values()
            for what in ("calls", "items")
        ]
        return cls(
            at=at,
            calls_s=reading.rate("millrace_calls_total"),
            items_s=reading.rate("millrace_items_total"),
            failures_s=failures_s(reading),
            waiting=sum(map(sum, queues)) if any(queues) else None,
            busy=busy(reading),
            rows=reading.mean("millrace_launch_rows"),
            p99_s=reading.quantile("millrace_call_seconds", 0.99),
        )


def failures_s(reading: Reading) -> float:
    """Calls and items a second that ended otherwise than well, those that clients gave up aside."""
    calls = reading.rate_by("millrace_calls_total", "outcome")
    items = reading.rate_by("millrace_items_total", "outcome")
    return (
        sum(calls.values())
        + items.get("failed", 0.0)
        - sum(calls.get(fine, 0.0) for fine in ("succeeded", "cancelled"))
    )


def busy(reading: Reading) -> float | None:
    """Of the workers' devices, on average; None: there is no worker."""
    workers = reading.of("worker").reports
    if not workers:
        return None
    shares = (Reading([one]).rate("millrace_device_busy_seconds_total") for one in workers)
    return sum(min(1.0, share) for share in shares) / len(workers)


def write(redis: "Redis", reading: Reading) -> bool:
    """One point, unless another keeper has just written one. Raises RedisError."""
    if not redis.set(_TURN, 1, nx=True, px=int(900 * EVERY_S)):
        return False
    seconds, _ = redis.time()
    with redis.pipeline() as steps:
        steps.rpush(KEY, orjson.dumps(asdict(Point.of(reading, seconds))))
        steps.ltrim(KEY, -MOST, -1)
        steps.expire(KEY, _KEPT_S)
        steps.execute()
    return True


def points(packed: Iterable[bytes]) -> list[Point]:
    """Those that are of this release, the oldest first."""
    found = []
    for one in packed:
        try:
            found.append(Point(**orjson.loads(one)))
        except (ValueError, TypeError):
            continue
    return found
