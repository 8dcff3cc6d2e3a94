"""Telemetry for pages: reports of the last minute, and history of the last half hour."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from redis import RedisError

from api.context import ContextDep
from jobs import clock
from jobs.telemetry.reports.history import Point
from jobs.telemetry.reports.reports import ReportSet


@dataclass(frozen=True, slots=True)
class TelemetrySnapshot:
    """Telemetry that a page shows."""

    reports: ReportSet  #: last minute
    history: list[Point]  #: last half hour
    redis_s: float | None  #: response time of Redis; None: no response

    def latest(self, figure: str) -> list[float | None]:
        """Returns one figure of the last half hour, oldest first."""
        return [getattr(point, figure) for point in self.history]


async def _load(context: ContextDep) -> TelemetrySnapshot:
    reports = await context.reports.read()
    since_s = clock.monotonic()
    try:
        points = await context.reports.history()
    except (RedisError, TimeoutError):
        return TelemetrySnapshot(reports, [], None)
    return TelemetrySnapshot(reports, points, clock.monotonic() - since_s)


Telemetry = Annotated[TelemetrySnapshot, Depends(_load)]
