"""History of the last half hour: a point every INTERVAL_S in a Redis list.

A keeper writes it and the dashboard draws it. If Redis loses it, it starts anew.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import orjson

from jobs.telemetry.reports.reports import ReportSet

if TYPE_CHECKING:
    from redis import Redis

KEY = "millrace:history"
INTERVAL_S = 10.0
MAX_POINTS = 180  # half an hour
_TURN = "millrace:history:turn"
_TTL_S = 3600


@dataclass(frozen=True, slots=True)
class Point:
    """State of the system at one time; None: not reported."""

    at: float  #: Unix time by Redis' clock, s
    calls_s: float  #: calls per second
    items_s: float  #: items per second
    failures_s: float  #: failures per second
    waiting: float | None  #: calls and items without a result
    busy: float | None  #: mean share of time that devices are busy, 0 to 1
    rows: float | None  #: mean entries per launch
    p99_s: float | None  #: 99th percentile of call latency, s

    @classmethod
    def from_reports(cls, reports: ReportSet, at: float) -> "Point":
        """Returns the point of the last minute; `at`: Unix time, s."""
        queues = [
            reports.gauge_by(f"millrace_queue_{what}", "model").values()
            for what in ("calls", "items")
        ]
        return cls(
            at=at,
            calls_s=reports.rate("millrace_calls_total"),
            items_s=reports.rate("millrace_items_total"),
            failures_s=failure_rate(reports),
            waiting=sum(map(sum, queues)) if any(queues) else None,
            busy=device_busy_share(reports),
            rows=reports.mean("millrace_launch_rows"),
            p99_s=reports.quantile("millrace_call_seconds", 0.99),
        )


def failure_rate(reports: ReportSet) -> float:
    """Returns failed calls and items per second, without calls that clients cancelled."""
    calls = reports.rate_by("millrace_calls_total", "outcome")
    items = reports.rate_by("millrace_items_total", "outcome")
    return (
        sum(calls.values())
        + items.get("failed", 0.0)
        - sum(calls.get(outcome, 0.0) for outcome in ("succeeded", "cancelled"))
    )


def device_busy_share(reports: ReportSet) -> float | None:
    """Returns the mean busy share of the workers' devices, 0 to 1; None without workers."""
    workers = reports.by_kind("worker").reports
    if not workers:
        return None
    shares = (ReportSet([one]).rate("millrace_device_busy_seconds_total") for one in workers)
    return sum(min(1.0, share) for share in shares) / len(workers)


def write(redis: "Redis", reports: ReportSet) -> bool:
    """Appends a point; returns False if another keeper has just done so. Raises RedisError."""
    if not redis.set(_TURN, 1, nx=True, px=int(900 * INTERVAL_S)):
        return False
    seconds, _ = redis.time()
    with redis.pipeline() as steps:
        steps.rpush(KEY, orjson.dumps(asdict(Point.from_reports(reports, seconds))))
        steps.ltrim(KEY, -MAX_POINTS, -1)
        steps.expire(KEY, _TTL_S)
        steps.execute()
    return True


def parse_points(packed: Iterable[bytes]) -> list[Point]:
    """Returns the points that this release can read, oldest first."""
    points = []
    for one in packed:
        try:
            points.append(Point(**orjson.loads(one)))
        except (ValueError, TypeError):
            continue
    return points
